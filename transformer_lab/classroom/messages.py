"""Parse a kernel's messages, which a student's code can forge, and keep only the fields that belong to each kind.

Without this, `test_messages_that_are_none_are_passed_over` and `test_of_a_message_only_what_its_kind_has_is_kept` fail.
"""

import json
import re
from typing import Any

from transformer_lab.files import clean

DELIMITER = b"<IDS|MSG>"
TEXT_CHARACTERS = 10_000  # in one string
SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")

Message = dict[str, Any]


def parse(frames: list[bytes], request_id: str) -> Message | None:
    """Return a message's type and content. If it does not answer the request or is not a message, return None."""
    try:
        start = frames.index(DELIMITER)
        header, parent, _, content = frames[start + 2 : start + 6]
        if max(len(header), len(parent)) > 10_000:
            return None
        parent = json.loads(parent)
        if not isinstance(parent, dict) or parent.get("msg_id") != request_id:
            return None
        header, content = json.loads(header), json.loads(content)
    except (ValueError, RecursionError, MemoryError):
        return None
    match header, content:
        case {"msg_type": str(kind)}, dict():
            return message(kind, content, request_id)
    return None


def message(kind: str, content: dict[str, Any], request_id: str) -> Message:
    """Return a message with the fields that nbval reads."""
    return {"msg_type": kind, "parent_header": {"msg_id": request_id}, "content": content}


def is_idle(message: Message) -> bool:
    """Return whether the message says that the kernel has finished a request."""
    return message["msg_type"] == "status" and message["content"].get("execution_state") == "idle"


def checked_output(message: Message) -> Message | None:
    """Return an output with only the fields of its kind, each of the right type.

    If nbval does not use this kind of output, return None.
    """
    kind, content = message["msg_type"], message["content"]
    fields: dict[str, Any]
    match kind:
        case "status" if is_idle(message):
            fields = {"execution_state": "idle"}
        case "stream":
            name = "stderr" if content.get("name") == "stderr" else "stdout"
            fields = {"name": name, "text": clean_text(content.get("text"))}
        case "display_data" | "execute_result":
            data = content.get("data")
            formats = list(data.items())[:10] if isinstance(data, dict) else []
            texts = {clean_text(mime, 100): clean_text(text) for mime, text in formats if isinstance(text, str)}
            fields = {"data": texts, "metadata": {}}
            if kind == "execute_result":
                fields["execution_count"] = 1
        case "error":
            lines = content.get("traceback")
            fields = {
                "ename": clean_text(content.get("ename"), 200),
                "evalue": clean_text(content.get("evalue"), 2000),
                "traceback": [clean_text(line, 2000) for line in lines[-50:]] if isinstance(lines, list) else [],
            }
        case _:
            return None
    return message | {"content": fields}


def clean_text(text: Any, most: int = TEXT_CHARACTERS) -> str:
    """Return text without terminal escapes, control characters, or lone surrogates, truncated to `most` characters.

    Anything other than a string becomes "".
    """
    if not isinstance(text, str):
        return ""
    cleaned = clean(_ESCAPES.sub("", text[:most].replace("\r\n", "\n"))).replace("\r", "\ufffd")
    return cleaned if len(text) <= most else f"{cleaned} …"
