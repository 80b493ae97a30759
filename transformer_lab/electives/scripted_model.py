"""A recurrent model without weights, whose sentences are known: to try decoders on."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn


class ScriptedModel(nn.Module):
    """What it says to a source stands in a script, and its state is what it has read: a token fed twice confuses it.

    It has what a decoder uses of a `RecurrentTranslator`. In training mode, and with padding in sight, it is confused;
    after a prefix that is not its own it repeats the last word.

    What its decoder gives are features, as a real decoder does: the tokens in reverse. The output layer turns them
    round, so a decoder that forgets it says something else.

    Args:
        says_to_source_beginning_with: first token of a source to the tokens of its translation, in their order.
        says_when_confused: a token.
        says_after_its_end: a token: what comes when a translation is over.
        vocab: number of tokens.
        pad_id: as `bos_id` and `eos_id`.
        training: the mode it starts in.
    """

    def __init__(self, says_to_source_beginning_with: dict[int, list[int]], says_when_confused: int,
                 says_after_its_end: int, vocab: int, pad_id: int = 0, bos_id: int = 1, eos_id: int = 2,
                 training: bool = False) -> None:  # fmt: skip
        super().__init__()
        self.config = SimpleNamespace(pad_id=pad_id, bos_id=bos_id, eos_id=eos_id, target_vocab=vocab, max_length=64)
        self.scripts = says_to_source_beginning_with
        self.lost, self.after = says_when_confused, says_after_its_end
        self.decoder = ScriptedDecoder(self)
        self.output = nn.Linear(vocab, vocab, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.output.weight.copy_(torch.eye(vocab).flip(0))
        self.steps = self.sentences_encoded = self.steps_without_keys = 0
        self.with_gradients = False
        self.train(training)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The memory is the tokens themselves, as numbers: `(batch, source, 1)`."""
        self.sentences_encoded += len(source)
        self.with_gradients |= torch.is_grad_enabled()
        return source[:, :, None].double(), (source != self.config.pad_id)[:, None, None]

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """`(batch, target)` to `(batch, target, vocab)`: the whole prefix at every position, and it counts as steps."""
        self.steps += target.size(1)
        self.with_gradients |= torch.is_grad_enabled()
        words = memory[:, :, 0].long()  # (batch, source)
        answers = [
            [self.answer(row[: end + 1], one[mask[0, 0]].tolist()) for end in range(len(row))]
            for row, one, mask in zip(target.tolist(), words, source_mask, strict=True)
        ]
        return nn.functional.one_hot(torch.tensor(answers), self.config.target_vocab).double()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, *self.encode(source))

    def answer(self, read: list[int], words: list[int]) -> int:
        """What follows after it has read these tokens, with these words of the source in sight."""
        config = self.config
        script = self.scripts.get(words[0]) if words and config.pad_id not in words else None
        if self.training or script is None:
            return self.lost
        said = [config.bos_id, *script]
        if read[: len(said)] != said[: len(read)]:  # it stammers
            return self.lost if read[-1] in (config.pad_id, config.bos_id, config.eos_id) else read[-1]
        return said[len(read)] if len(read) < len(said) else self.after


class ScriptedDecoder(nn.Module):
    """The decoder of a `ScriptedModel`. Its state holds the number 1, how much it has read, and what."""

    room = 40

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__()
        self.model = [model]  # no submodule: the model holds the decoder
        self.attention = SimpleNamespace(project=lambda memory: -memory)

    def first_state(self, memory: Tensor) -> Tensor:
        state = memory.new_zeros(len(memory), 2 + self.room)
        state[:, 0] = 1
        return state

    def step(
        self, token: Tensor, state: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `AttentionDecoder.step`; the output is what `model.output` makes logits of.

        Raises:
            ValueError: the token or the mask has another shape than a real decoder takes, or the keys are others than
                those that its attention makes of the memory.
        """
        if token.dim() != 1:
            raise ValueError(f"the tokens have shape {tuple(token.shape)}, but must be (batch,): one for each sentence")
        if mask is not None and mask.dim() != 3:
            raise ValueError(f"the mask has shape {tuple(mask.shape)}, but must be (batch, 1, source)")
        if keys is not None and not torch.equal(keys, self.attention.project(memory)):
            raise ValueError("the keys are not what `attention.project` makes of the memory")
        (model,) = self.model
        model.steps += 1
        model.steps_without_keys += keys is None
        model.with_gradients |= torch.is_grad_enabled()
        state, answers = state.clone(), []
        for row, (one, words) in enumerate(zip(token.tolist(), memory[:, :, 0].long().tolist(), strict=True)):
            seen = [True] * len(words) if mask is None else mask[row].flatten().tolist()
            count = int(state[row, 1]) if state[row, 0] == 1 else self.room
            if count < self.room:
                state[row, 2 + count] = one
                state[row, 1] = count + 1
            read = state[row, 2 : 3 + count].long().tolist()
            in_sight = [word for word, visible in zip(words, seen, strict=True) if visible]
            answers.append(model.answer(read, in_sight) if count < self.room else model.after)
        return nn.functional.one_hot(torch.tensor(answers), model.config.target_vocab).double().flip(-1), state
