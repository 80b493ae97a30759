"""A small English–Chinese corpus that is generated from a grammar, so no download is needed."""

from itertools import product

from transformer_lab.data.corpora import Pairs

SUBJECTS = {"I": "我", "you": "你", "we": "我们", "they": "他们", "Tom": "汤姆", "Mary": "玛丽", "my brother": "我哥哥"}
TIMES = {"": "", "today": "今天", "tomorrow": "明天", "every day": "每天"}
VERBS = {"eat": "吃", "buy": "买", "sell": "卖", "like": "喜欢", "need": "需要"}
THINGS = {"apples": "苹果", "bread": "面包", "fish": "鱼", "vegetables": "蔬菜", "rice": "米饭", "red flowers": "红花"}
SINGULAR = ("Tom", "Mary", "my brother")


def small_chinese_pairs() -> Pairs:
    """Return 1,680 pairs (English, Chinese), such as `("Tom does not eat fish today.", "汤姆今天不吃鱼。")`.

    The time comes last in English but before the verb in Chinese. The English words "do not" are a single character in
    Chinese.
    """
    pairs = []
    for (who, who_zh), (when, when_zh), (verb, verb_zh), (what, what_zh), negated in product(
        SUBJECTS.items(), TIMES.items(), VERBS.items(), THINGS.items(), (False, True)
    ):
        third = "s" if who in SINGULAR else ""
        auxiliary = "does not" if third else "do not"
        verb_phrase = f"{auxiliary} {verb}" if negated else verb + third
        english = " ".join(part for part in (who, verb_phrase, what, when) if part)
        chinese = f"{who_zh}{when_zh}{'不' if negated else ''}{verb_zh}{what_zh}。"
        pairs.append((english[0].upper() + english[1:] + ".", chinese))
    return pairs
