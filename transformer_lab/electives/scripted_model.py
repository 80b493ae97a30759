"""A recurrent model for testing decoders. It needs no training, and its translations are known in advance."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn


class ScriptedModel(nn.Module):
    """A model that reads its translations from a script. It has the parts of a `RecurrentTranslator` that decoders use.

    Its state contains the tokens it has read. If these tokens are not the translation so far, the model repeats the
    last token. Every other kind of mistake has its own output token, so the translation shows what went wrong. The
    model also records how it was used.

    Args:
        says_to_source_beginning_with: Maps the first token of each source to the tokens of its translation.
        says_when_confused: The output after a pad, bos, or eos token that is not part of the translation so far.
        says_when_it_sees_padding: The output if no mask hides the padding of the source.
        says_when_it_sees_nothing: The output if the mask hides the first word of the source.
        says_in_training_mode: The output in training mode, when a real model would use dropout.
        says_after_its_end: The output after the end of a translation.
        vocab: Number of tokens.
        pad_id, bos_id, eos_id: The same as in `TransformerConfig`.
        training: Whether the model starts in training mode.
    """

    def __init__(
        self,
        says_to_source_beginning_with: dict[int, list[int]],
        says_when_confused: int,
        says_when_it_sees_padding: int,
        says_when_it_sees_nothing: int,
        says_in_training_mode: int,
        says_after_its_end: int,
        vocab: int,
        pad_id: int = 0,
        bos_id: int = 1,
        eos_id: int = 2,
        training: bool = False,
    ) -> None:
        super().__init__()
        self.config = SimpleNamespace(pad_id=pad_id, bos_id=bos_id, eos_id=eos_id, target_vocab=vocab, max_length=64)
        self.says = SimpleNamespace(
            script=says_to_source_beginning_with,
            when_confused=says_when_confused,
            when_it_sees_padding=says_when_it_sees_padding,
            when_it_sees_nothing=says_when_it_sees_nothing,
            in_training_mode=says_in_training_mode,
            after_its_end=says_after_its_end,
        )
        self.sentences_encoded = self.times_decoded = self.steps_without_keys = 0
        self.with_gradients = False  # whether it ever ran with gradients enabled
        self.decoder = ScriptedDecoder(self)
        self.output = nn.Linear(vocab, vocab, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.output.weight.copy_(torch.eye(vocab).flip(0))  # so that features can't be mistaken for logits
        if not training:
            self.eval()

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the source tokens as the memory, `(batch, source, 1)`, and their mask, `(batch, 1, 1, source)`."""
        self.sentences_encoded += len(source)
        self.with_gradients |= torch.is_grad_enabled()
        return source[:, :, None].double(), (source != self.config.pad_id)[:, None, None]

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Return logits, `(batch, target, vocab)`, for a target, `(batch, target)`. Every position counts as a step."""
        return self.output(self.decoder(target, memory, source_mask[:, 0]))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits, `(batch, target, vocab)`, for a source, `(batch, source)`, and a target, `(batch, target)`."""
        return self.decode(target, *self.encode(source))

    def answer(self, read: list[int], words: list[int]) -> int:
        """Return the output after the model reads the tokens in `read`, given the source words that are not masked."""
        config, says = self.config, self.says
        if self.training:
            return says.in_training_mode
        if config.pad_id in words:
            return says.when_it_sees_padding
        if not words or words[0] not in says.script:
            return says.when_it_sees_nothing
        script = [config.bos_id, *says.script[words[0]]]
        if read[: len(script)] != script[: len(read)]:
            return says.when_confused if read[-1] in (config.pad_id, config.bos_id, config.eos_id) else read[-1]
        return script[len(read)] if len(read) < len(script) else says.after_its_end


class ScriptedDecoder(nn.Module):
    """The decoder of a `ScriptedModel`. Its state is a 1, the number of tokens read, and the tokens themselves."""

    room = 40

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__()
        self.model = [model]  # in a list, so that the model isn't registered as a submodule of its own submodule
        self.attention = SimpleNamespace(project=lambda memory: -memory)

    def first_state(self, memory: Tensor) -> Tensor:
        """Return the initial state, `(batch, 2 + room)`, with no tokens read yet."""
        state = memory.new_zeros(len(memory), 2 + self.room)
        state[:, 0] = 1
        return state

    def step(
        self, token: Tensor, state: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Read one token of each sentence, as `AttentionDecoder.step` does. `model.output` maps the output to logits.

        Raises:
            ValueError: The tokens or the mask have a shape that a real decoder would not accept, or the keys are not
                the result of `attention.project(memory)`.
        """
        if token.dim() != 1:
            raise ValueError(f"the tokens have shape {tuple(token.shape)}, expected (batch,): one for each sentence")
        if mask is not None and mask.dim() != 3:
            raise ValueError(f"the mask has shape {tuple(mask.shape)}, expected (batch, 1, source)")
        if keys is not None and not torch.equal(keys, self.attention.project(memory)):
            raise ValueError("the keys are not what `attention.project` computes from the memory")
        (model,) = self.model
        model.times_decoded += 1
        model.steps_without_keys += keys is None
        model.with_gradients |= torch.is_grad_enabled()
        mask = None if mask is None else mask.expand(len(token), -1, -1)
        state, answers = state.clone(), []
        for row, (token_id, words) in enumerate(zip(token.tolist(), memory[:, :, 0].long().tolist(), strict=True)):
            seen = [True] * len(words) if mask is None else mask[row].flatten().tolist()
            count = int(state[row, 1]) if state[row, 0] == 1 else self.room
            if count < self.room:
                state[row, 2 + count] = token_id
                state[row, 1] = count + 1
            read = state[row, 2 : 3 + count].long().tolist()
            visible = [word for word, is_seen in zip(words, seen, strict=True) if is_seen]
            answers.append(model.answer(read, visible) if count < self.room else model.says.after_its_end)
        return nn.functional.one_hot(torch.tensor(answers), model.config.target_vocab).double().flip(-1), state

    def forward(self, target: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Read a target, `(batch, target)`, one position at a time, as `AttentionDecoder.forward` does."""
        state, keys, outputs = self.first_state(memory), self.attention.project(memory), []
        for position in range(target.shape[1]):
            features, state = self.step(target[:, position], state, memory, mask, keys)
            outputs.append(features)
        return torch.stack(outputs, dim=1)
