"""EndpointHandler for Hugging Face Inference Endpoints: a chat with pictures in, an answer and its visual tokens out.

The inference toolkit imports this file from the model's folder, makes `EndpointHandler(folder)` once, and calls it with the
body of every request. An error's text goes back to the caller with status 400. The file stands alone: the model's own code
comes in through transformers' Auto classes.
"""

import base64
import binascii
import difflib
import inspect
import ipaddress
import re
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

ROLES = ("system", "user", "assistant")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")  # of what PIL reads, no EPS, which runs Ghostscript
# name -> (kind, least, most); most None for `Limits.new_tokens`
NUMBERS: dict[str, tuple[type, float, float | None]] = {
    "max_new_tokens": (int, 1, None),
    "max_time": (float, 0.001, 86_400),
    "min_new_tokens": (int, 0, None),
    "temperature": (float, 0, 100),
    "top_k": (int, 0, 1_000_000),
    "top_p": (float, 1e-6, 1),
    "min_p": (float, 0, 1),
    "repetition_penalty": (float, 0.01, 100),
    "no_repeat_ngram_size": (int, 0, 1000),
    "num_beams": (int, 1, 8),
    "length_penalty": (float, -10, 10),
    "seed": (int, 0, 2**63 - 1),
}
STOP_LENGTH, LEAST_TEMPERATURE = 100, 0.01
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
OURS = ("token_budget", "question", "encode_ratio", "allocation_mode")  # checked by the processor and the model
PARAMETERS = (*NUMBERS, "do_sample", "stop_strings", *OURS)
DEFAULT_NEW_TOKENS = 256
PICTURE_KEYS = ("image", "url", "base64", "image_url")
MESSAGE_KEYS = ("role", "content", "name")  # OpenAI's name and detail are allowed and not used
_HALF = re.compile(r"[\ud800-\udfff]")
_SCHEME = re.compile(r"\s*([a-zA-Z][a-zA-Z0-9+.-]*):")
_SEND = "send an http(s) URL, or the picture itself as data:image/png;base64,..."


@dataclass(frozen=True)
class Limits:
    """What one request may ask of the server.

    Attributes:
        pictures: in one chat.
        picture_bytes: of one picture's file, downloaded or decoded.
        picture_pixels: of one picture, counted before it is decompressed.
        pixels: of all pictures of one chat.
        characters: of all texts of one chat, counted before they are tokenized.
        new_tokens: largest `max_new_tokens`.
        seconds: that one answer may take, whatever longer `max_time` a request names; None for as long as it needs.
        fetch_seconds: for one download, beside the one time that its host's name is resolved in.
        private_addresses: whether URLs may lead to loopback, private and other addresses that are not on the internet.
    """

    pictures: int = 16
    picture_bytes: int = 20_000_000
    picture_pixels: int = 50_000_000
    pixels: int = 100_000_000
    characters: int = 400_000
    new_tokens: int = 4096
    seconds: float | None = None
    fetch_seconds: float = 20.0
    private_addresses: bool = False


class EndpointHandler:
    """Answers chats about pictures. Safe to call from several threads: answers do not depend on other calls.

    Args:
        path: folder of the model; by default the one that this file is in.
        limits: what one request may ask.
    """

    def __init__(self, path: str = "", limits: Limits | None = None):
        self.limits = limits or Limits()
        where = str(path or Path(__file__).parent)
        cuda = torch.cuda.is_available()
        # The model first: its config is what refuses a release of transformers that is too old, and says so.
        self.model = AutoModelForImageTextToText.from_pretrained(
            where, dtype=torch.bfloat16 if cuda else torch.float32, trust_remote_code=True
        )
        self.model = self.model.to("cuda" if cuda else "cpu").eval()
        self.processor = AutoProcessor.from_pretrained(where, trust_remote_code=True)
        # Control tokens that a user types are text, where the installed release can do it (some time after 5.20).
        known = inspect.signature(self.processor.apply_chat_template).parameters
        self._sanitize = {"sanitize_control_tokens": True} if "sanitize_control_tokens" in known else {}
        # Threads that share a device gain nothing, and the seed is the device's; downloads and pictures need no turn.
        self._turn = threading.Lock()

    def __call__(self, data: dict) -> dict:
        """The answer to one request.

        Args:
            data: "inputs", a chat as a list of messages, or an object with "text" (or "question") and "image", or a text;
                and optionally "parameters", of `PARAMETERS`. A picture is an http(s) URL, a data URL or base64 text.

        Returns:
            "generated_text"; "visual_tokens" of each picture, in order, and "all_visual_tokens" that it has;
            "prompt_tokens", "generated_tokens"; "finish_reason", "stop", "length" or "time".

        Raises:
            ValueError: the request is not what it must be; says what came, what was wanted and what to do.
        """
        inputs, parameters = read_body(data)
        options = read_parameters(parameters, self.limits)
        ours = {name: options.pop(name, None) for name in ("token_budget", "question")}
        seed = options.pop("seed", None)
        chat = read_chat(inputs, self.limits)
        prompt = self.processor.apply_chat_template(
            [chat],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs=ours,
            **self._sanitize,
        ).to(self.model.device)
        length, most = prompt["input_ids"].shape[1], self.model.config.get_text_config().max_position_embeddings
        if length + options["max_new_tokens"] > most:
            raise ValueError(
                f"the chat has {length} tokens and max_new_tokens={options['max_new_tokens']}, together more than the {most} "
                "that the model reads; shorten the chat, or lower token_budget or max_new_tokens"
            )
        with self._turn, self._seeded(seed):
            output = self.model.generate(**prompt, **options, tokenizer=self.processor.tokenizer)
        return self._answer(prompt, output[0, length:], options)

    @contextmanager
    def _seeded(self, seed: int | None):
        """With a seed, random numbers that depend on it alone; the generators go on as if nothing had been drawn."""
        if seed is None:
            yield
            return
        with torch.random.fork_rng([self.model.device] if self.model.device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield

    def _answer(self, prompt, tokens: torch.Tensor, options: dict[str, Any]) -> dict:
        stops = options.get("stop_strings", [])
        stops = [stops] if isinstance(stops, str) else stops
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        text = self.processor.decode(tokens, skip_special_tokens=True)
        stopped = int(tokens[-1]) in ends or any(stop in text for stop in stops)
        cut = "length" if len(tokens) >= options["max_new_tokens"] else "time" if "max_time" in options else "stop"
        merge = self.model.config.vision_config.spatial_merge_size
        has_pictures = "image_grid_thw" in prompt
        cells = (prompt["image_grid_thw"].prod(-1) // merge**2).tolist() if has_pictures else []
        return {
            "generated_text": text,
            "visual_tokens": prompt["image_token_counts"].tolist() if has_pictures else [],
            "all_visual_tokens": cells,
            "prompt_tokens": prompt["input_ids"].shape[1],
            "generated_tokens": len(tokens),
            "finish_reason": "stop" if stopped else cut,
        }


def read_body(data) -> tuple[object, dict]:
    """Inputs and parameters of a request's body.

    Raises:
        ValueError: a part is missing, unknown or no object.
    """
    if not isinstance(data, dict) or data.get("inputs") in (None, "", [], {}):
        raise ValueError(
            'the request has no inputs; send {"inputs": [{"role": "user", "content": [...]}], "parameters": {...}}'
        )
    refuse_unknown(data, ("inputs", "parameters"), "field of the request")
    parameters = data.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise ValueError(
            f"parameters is a {type(parameters).__name__}, wanted an object such as {{'token_budget': 128}}"
        )
    return data["inputs"], {name: value for name, value in (parameters or {}).items() if value is not None}


def refuse_unknown(given: dict, known: tuple[str, ...], what: str):
    """Raises ValueError where a name of `given` is not among `known`, with the nearest one that is."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise ValueError(f"{name!r} is no {what}; {meant}Known are: {', '.join(known)}")


def refuse_half(text: str, name: str):
    """Raises ValueError where `text` holds a lone surrogate: JSON may have one, and no tokenizer reads it."""
    if half := _HALF.search(text):
        raise ValueError(f"{name} holds half of a character (a lone surrogate, {half[0]!r}); correct it")


def read_parameters(parameters: dict, limits: Limits) -> dict:
    """Checked arguments of `generate()`, with `token_budget`, `question` and `seed` where they were given.

    Naming a temperature, top_k, top_p or min_p asks for sampling; a temperature of 0 asks for the likeliest tokens.

    Raises:
        ValueError: a parameter is unknown, or its value is not allowed.
    """
    refuse_unknown(parameters, PARAMETERS, "parameter")
    options: dict[str, Any] = {"max_new_tokens": min(DEFAULT_NEW_TOKENS, limits.new_tokens)}
    for name, value in parameters.items():
        if name in NUMBERS:
            kind, least, most = NUMBERS[name]
            options[name] = read_number(name, value, kind, least, limits.new_tokens if most is None else most)
        elif name == "do_sample" and not isinstance(value, bool):
            raise ValueError(f"do_sample={value!r} is not allowed; pass true or false")
        elif name == "stop_strings" and not is_texts([value] if isinstance(value, str) else value):
            raise ValueError(
                f"stop_strings={value!r} is not allowed; pass a text or a list of up to 16 texts of 1 to {STOP_LENGTH} characters"
            )
        elif name == "question" and (length := len(str(value))) > limits.characters:
            raise ValueError(f"question has {length} characters; send at most {limits.characters}")
        else:
            options[name] = value
    if limits.seconds is not None:
        options["max_time"] = min(limits.seconds, options.get("max_time", limits.seconds))
    refuse_half("".join(options.get("stop_strings", "")), "stop_strings")
    if options.get("min_new_tokens", 0) > options["max_new_tokens"]:
        raise ValueError(
            f"min_new_tokens={options['min_new_tokens']} is more than max_new_tokens={options['max_new_tokens']}; pass a larger "
            "max_new_tokens, or a smaller min_new_tokens"
        )
    if "length_penalty" in options and options.get("num_beams", 1) == 1:
        raise ValueError("length_penalty has no effect without beams; pass num_beams above 1, or leave it out")
    sampling = [name for name in SAMPLING if name in options]
    if 0 < options.get("temperature", 0) < LEAST_TEMPERATURE:  # probabilities would be NaN
        raise ValueError(
            f"temperature={options['temperature']} is not allowed; pass 0, or a number from {LEAST_TEMPERATURE} on"
        )
    if options.get("temperature") == 0:
        if options.get("do_sample"):
            raise ValueError("temperature=0 and do_sample=true exclude each other; leave one of them out")
        options = {name: value for name, value in options.items() if name not in SAMPLING} | {"do_sample": False}
    elif sampling and options.get("do_sample") is False:
        raise ValueError(f"{sampling[0]} has no effect with do_sample=false; leave one of them out")
    elif sampling:
        options["do_sample"] = True
    return options


def is_texts(value) -> bool:
    """Whether `value` is a list of 1 to 16 texts of 1 to `STOP_LENGTH` characters: transformers' table of them grows with both."""
    right = isinstance(value, list) and 1 <= len(value) <= 16
    return right and all(isinstance(v, str) and 1 <= len(v) <= STOP_LENGTH for v in value)


def read_number(name: str, value, kind: type, least: float, most: float) -> float:
    """`value` as `kind`.

    Raises:
        ValueError: it is no number of that kind within `least` and `most`.
    """
    right = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        what = "whole number" if kind is int else "number"
        raise ValueError(f"{name}={value!r} is not allowed; pass a {what} from {least} to {most}")
    return kind(value)


def read_chat(inputs, limits: Limits) -> list[dict]:
    """A chat as transformers' templates take it, with every picture opened.

    Raises:
        ValueError: a message, a part or a picture is not what it must be; names it.
    """
    if isinstance(inputs, (str, dict)):
        inputs = [{"role": "user", "content": inputs if isinstance(inputs, str) else one_turn(inputs)}]
    if not isinstance(inputs, list):
        raise ValueError(f"inputs is a {type(inputs).__name__}, wanted a list of messages, an object or a text")
    chat = [read_message(message, f"inputs[{number}]") for number, message in enumerate(inputs)]
    if chat[-1]["role"] != "user":
        raise ValueError(
            f"the last message is the {chat[-1]['role']}'s; end the chat with a user's message to be answered"
        )
    parts = [part for message in chat for part in message["content"]]
    if (length := sum(len(part["text"]) for part in parts if part["type"] == "text")) > limits.characters:
        raise ValueError(f"the chat has {length} characters of text; send at most {limits.characters}")
    pictures, left = [part for part in parts if part["type"] == "image"], limits.pixels
    if len(pictures) > limits.pictures:
        raise ValueError(f"the chat has {len(pictures)} pictures; send at most {limits.pictures}")
    for number, part in enumerate(pictures):
        picture = part["image"] = open_picture(part["image"], f"picture {number + 1}", limits, left)
        left -= picture.width * picture.height
    return chat


def one_turn(inputs: dict) -> list:
    """The content of a user's message from {"text" or "question", "image"}."""
    inputs = {name: value for name, value in inputs.items() if value is not None}
    refuse_unknown(inputs, ("text", "question", "image"), "field of inputs")
    if ("text" in inputs) == ("question" in inputs):
        raise ValueError('inputs needs one of "text" and "question"; send {"question": "...", "image": "https://..."}')
    pictures = inputs.get("image")
    pictures = pictures if isinstance(pictures, list) else [] if pictures is None else [pictures]
    text = {"type": "text", "text": inputs["text"] if "text" in inputs else inputs["question"]}
    return [*({"type": "image", "image": picture} for picture in pictures), text]


def read_message(message, where: str) -> dict:
    """A message with a known role and a list of text and image parts."""
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        came = repr(message.get("role")) if isinstance(message, dict) else f"a {type(message).__name__}"
        raise ValueError(
            f"{where} has the role {came}; send an object with role, one of {', '.join(ROLES)}, and content"
        )
    message = {name: value for name, value in message.items() if value is not None}  # as of a part's
    refuse_unknown(message, MESSAGE_KEYS, f"field of {where}")
    content = message.get("content")
    content = [content] if isinstance(content, str) else content
    if not isinstance(content, list) or not content:
        raise ValueError(f"{where}.content is {content!r}; send a text or a list of text and image parts")
    return {
        "role": message["role"],
        "content": [read_part(part, f"{where}.content[{number}]") for number, part in enumerate(content)],
    }


def read_part(part, where: str) -> dict:
    """A text part, or an image part whose picture is still the text that came. OpenAI's form and transformers' both do."""
    part = {"type": "text", "text": part} if isinstance(part, str) else part
    if isinstance(part, dict):  # clients that give every part the same fields leave those of the others empty
        part = {name: value for name, value in part.items() if value is not None}
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        if not isinstance(part.get("text"), str):
            raise ValueError(f"{where}.text is a {type(part.get('text')).__name__}, wanted a text")
        refuse_unknown(part, ("type", "text"), f"field of {where}")
        refuse_half(part["text"], f"{where}.text")
        return {"type": "text", "text": part["text"]}
    if kind not in ("image", "image_url"):
        raise ValueError(f"{where} has the type {kind!r}; this server takes text, image and image_url")
    if "path" in part:
        raise ValueError(f"{where} names a file by path; this server reads no files: {_SEND}")
    refuse_unknown(part, ("type", *PICTURE_KEYS), f"field of {where}")
    given = [name for name in PICTURE_KEYS if name in part]
    if len(given) != 1:
        raise ValueError(f"{where} has {len(given)} pictures in one part; send one of {', '.join(PICTURE_KEYS)}")
    source = part[given[0]]
    if isinstance(source, dict):
        refuse_unknown(source, ("url", "detail"), f"field of {where}.{given[0]}")
        source = source.get("url")
    return {"type": "image", "image": source}


def open_picture(source, name: str, limits: Limits, left: int | None = None) -> Image.Image:
    """The picture that a text stands for, decompressed. transformers' own loader would also open files and knows no limits.

    Args:
        left: pixels that the pictures before it leave of the chat's; `None` for all of them.

    Raises:
        ValueError: it is no address or picture that is allowed; says why.
    """
    content = read_bytes(source, name, limits)
    Image.init()
    too_large = f"{name} has more than {limits.picture_pixels} pixels; send a smaller one"
    left = limits.pixels if left is None else left
    try:
        picture = Image.open(BytesIO(content), formats=[form for form in FORMATS if form in Image.OPEN])
        pixels = picture.width * picture.height
        fits = pixels <= min(limits.picture_pixels, left)
        if fits:
            picture.load()
    except Image.DecompressionBombError as error:
        raise ValueError(too_large) from error
    except Exception as error:  # a hostile file can make a decoder raise anything
        what = str(error).split(" <_io")[0]
        raise ValueError(f"{name} is no picture that can be read ({what}); send a whole PNG, JPEG or WebP") from error
    if pixels > limits.picture_pixels:
        raise ValueError(too_large)
    if not fits:
        raise ValueError(f"{name} brings the chat to more than {limits.pixels} pixels; send fewer or smaller pictures")
    return picture


def read_bytes(source, name: str, limits: Limits) -> bytes:
    """The file of a picture from a URL, a data URL or base64 text; never from this server's disk."""
    if not isinstance(source, str) or not source.strip():
        raise ValueError(
            f"{name} is {'empty' if source is None or isinstance(source, str) else f'a {type(source).__name__}'}; {_SEND}"
        )
    match = _SCHEME.match(source)
    scheme = match[1].lower() if match else ""
    if scheme in ("http", "https"):
        refuse_half(source, name)
        return download(source.strip(), name, limits)
    if scheme == "data":
        head, comma, body = source.partition(",")
        if not comma or not head.lower().rstrip().endswith(";base64"):
            raise ValueError(f"{name} is a data URL without ;base64, in front of its content; {_SEND}")
        body = unquote(body) if "%" in body else body
    elif scheme:
        raise ValueError(f"{name} is a {scheme}: address, and this server opens http and https alone; {_SEND}")
    else:
        body = source
    if len(body) * 3 // 4 > limits.picture_bytes + 3:
        raise ValueError(f"{name} has more than {limits.picture_bytes} bytes; send a smaller one")
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        came = "a data URL whose base64 is broken" if scheme else f"{source[:40]!r}, neither a URL nor base64"
        raise ValueError(f"{name} is {came} ({error}); this server reads no files: {_SEND}") from error


def download(url: str, name: str, limits: Limits) -> bytes:
    """What stands at an http(s) address, redirects followed.

    What a name resolves to is checked before a connection is tried, so that no answer tells which ports of the server's own network
    are open, and its peer again once it stands and before anything is sent, so that neither a redirect nor a name that resolves
    otherwise the second time leads there. Proxies are not used, because they would hide it.
    """

    def refuse_inside(address: str):
        if not _on_the_internet(address):
            raise ValueError(f"{name} leads to an address that is not on the internet; send the picture as a data URL")

    def watch(event: str, info: dict):
        if event == "connection.connect_tcp.started" and not limits.private_addresses:
            for address in _resolved(info["host"]):
                refuse_inside(address)
        if event.endswith(".started") and time.monotonic() > end:  # what resolving took counts, too
            raise TimeoutError
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            _stop_at(end, info["return_value"])
        if event == "connection.connect_tcp.complete" and not limits.private_addresses:
            try:
                refuse_inside(info["return_value"].get_extra_info("server_addr")[0])
            except ValueError:
                info["return_value"].close()
                raise

    try:
        from huggingface_hub.utils import httpx  # the one that the installed release is built on
    except ImportError:
        import httpx
    content, end = bytearray(), time.monotonic() + limits.fetch_seconds
    try:
        with (
            httpx.Client(
                timeout=limits.fetch_seconds, follow_redirects=True, max_redirects=3, trust_env=False
            ) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}, extensions={"trace": watch}) as response,
        ):
            if response.status_code != 200:
                raise ValueError(f"{name} can't be fetched: its server answered {response.status_code}; check the URL")
            for block in response.iter_raw():
                content += block
                if len(content) > limits.picture_bytes:
                    raise ValueError(f"{name} has more than {limits.picture_bytes} bytes; send a smaller one")
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ValueError(f"{name} did not arrive within {limits.fetch_seconds:g} seconds; {_SEND}") from error
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last of a host that is no name
        what = str(error) or type(error).__name__
        raise ValueError(
            f"{name} can't be fetched ({what}); check the URL, or send the picture as a data URL"
        ) from error
    return bytes(content)


def _stop_at(end: float, stream):
    """Lets `read` of a connection's stream raise `TimeoutError` from `end` on: httpx limits each read alone, and a server may send
    headers and body byte by byte."""
    read = stream.read

    def read_in_time(max_bytes: int, timeout: float | None = None) -> bytes:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return read(max_bytes, left if timeout is None else min(left, timeout))

    stream.read = read_in_time


def _resolved(host: str) -> list[str]:
    """The addresses of a name; none where it has none, which connecting to it will tell."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


# Protocol assignments (RFC 6890), a network's own NAT64 (RFC 8215), documentation (RFC 9637), segment routing (RFC 9602).
_NOT_PUBLIC = [ipaddress.ip_network(one) for one in ("192.0.0.0/24", "64:ff9b:1::/48", "3fff::/20", "5f00::/16")]


def _on_the_internet(address: str) -> bool:
    """Whether an address is public, and the IPv4 address too that an IPv6 one stands for (compatible, mapped, 6to4, NAT64: RFC
    6052). What older releases of Python take for public is not: `_NOT_PUBLIC` and site-local addresses."""
    peer = ipaddress.ip_address(address)
    inner = None
    if peer.version == 6:
        if peer.is_site_local:
            return False
        inner = peer.ipv4_mapped or peer.sixtofour
        if any(peer in ipaddress.ip_network(prefix) for prefix in ("::/96", "64:ff9b::/96")):
            inner = ipaddress.IPv4Address(int(peer) % 2**32)
    peer = inner or peer
    return peer.is_global and not peer.is_multicast and not any(peer in network for network in _NOT_PUBLIC)
