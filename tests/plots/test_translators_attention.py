"""The other tests use a fake translator. This one checks that the heat maps work with a real one."""

import numpy as np
import pytest

from transformer_lab.plots import draw_attention


@pytest.mark.parametrize(
    ("stack", "query_language", "key_language"),
    [("encoder", "German", "German"), ("decoder", "English", "English"), ("cross", "English", "German")],
)
def test_rows_are_queries_in_the_language_of_the_query(untrained_translator, stack, query_language, key_language):
    sentence = "Zwei Frauen sitzen draußen."
    real_translator = untrained_translator(d_model=16, n_heads=2, n_layers=2, d_ff=32, max_length=24)
    weights, source_tokens, target_tokens = real_translator.attention(sentence)
    tokens = {"German": source_tokens, "English": target_tokens}
    assert len(source_tokens) != len(target_tokens)  # so that swapped axes would fail

    axes = draw_attention(real_translator, sentence, stack, layer=0, head=1).axes[0]
    for side, language in (("query", query_language), ("key", key_language)):
        assert [text.get_text() for text in axes.texts if text.get_gid() == side] == tokens[language]
    assert (axes.get_ylabel(), axes.get_xlabel()) == (f"query ({query_language})", f"key ({key_language})")
    assert "".join(source_tokens).replace("▁", " ").strip() == f"{sentence}<eos>"
    assert target_tokens[0] == "<bos>"

    drawn = np.asarray(axes.collections[0].get_array())
    module = {"encoder": "encoder.layers.0.self_attention", "decoder": "decoder.layers.0.self_attention"}
    np.testing.assert_array_equal(drawn, weights[module.get(stack, "decoder.layers.0.cross_attention")][0, 1])
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0, atol=1e-5)  # rows, not columns, sum to 1, up to float32 rounding
    if stack == "decoder":
        assert (np.triu(drawn, k=1) == 0).all()  # no token sees later ones
