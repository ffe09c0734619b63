"""Chat templates: the engine's rendering against Python's jinja2, on published templates (made by make_templates.py), on
own ones that use every feature, and the built-in ones against the published ones of their families."""

import ctypes as C
import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest

import engine_ctypes as ec
from models import models_dir
from chat_cases import CONVERSATIONS, FEATURES, VARIABLES

NOW = 1_780_000_000
CHAT_TEMPLATE = 34


class Message(C.Structure):
    _fields_ = [("role", C.c_char_p), ("content", C.c_char_p), ("content_bytes", C.c_uint64)]


class ChatParams(ec.Sized):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("generate", C.c_int32),
        ("template_text", C.c_char_p),
        ("template_bytes", C.c_uint64),
        ("template_name", C.c_char_p),
        ("variables_json", C.c_char_p),
        ("unix_time", C.c_int64),
    ]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


@functools.lru_cache
def python_template(source):
    """Compiled in Hugging Face's environment; an error is raised when it renders."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = now.strftime
    return environment.from_string(source)


def python_render(source, messages, generate, variables, bos, eos):
    """As Hugging Face's apply_chat_template; None for an error."""
    context = {"tools": None, "documents": None, "bos_token": bos, "eos_token": eos, "add_generation_prompt": generate}
    try:
        return python_template(source).render(messages=messages, **{**context, **variables})
    except (jinja2.TemplateError, TypeError, AttributeError, KeyError, ValueError):
        return None


@pytest.fixture(scope="module")
def model(engine, toy_path):
    with ec.Model(toy_path("llama_untied"), 1) as opened:
        for name in ("engine_chat_render_with", "engine_chat_template_at"):
            getattr(opened.lib, name).restype = C.c_char_p if name.endswith("at") else C.c_int32
        yield opened


def render(model, messages, generate, source=None, name=None, variables=None, now=NOW):
    """The rendering, or the error's (code, message)."""
    list_ = (Message * len(messages))()
    for slot, message in zip(list_, messages):
        content = message["content"].encode()
        slot.role, slot.content, slot.content_bytes = message["role"].encode(), content, len(content)
    text = source.encode() if source is not None else None
    params = ChatParams(
        generate=generate, template_text=text, template_bytes=len(text or b""), template_name=name.encode() if name else None,
        variables_json=json.dumps(variables).encode() if variables else None, unix_time=now)
    n, error = C.c_uint64(), ec.Error()
    out, code = C.create_string_buffer(1), ec.BUFFER_TOO_SMALL
    while code == ec.BUFFER_TOO_SMALL:
        out = C.create_string_buffer(max(1, n.value))
        code = model.lib.engine_chat_render_with(
            model.handle, list_, C.c_uint64(len(messages)), C.byref(params), out, C.c_uint64(n.value), C.byref(n), C.byref(error))
    return (code, error.message.decode()) if code else out.raw[: n.value].decode()


def bos_eos(model):
    """The texts that the toy's tokens have."""
    source = "{{ bos_token }}|{{ eos_token }}"
    return render(model, [{"role": "user", "content": ""}], False, source).split("|")


def published():
    path = models_dir() / "chat_templates.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def compare(model, source, variables_list=VARIABLES):
    bos, eos = bos_eos(model)
    n_rendered = 0
    for messages in CONVERSATIONS:
        for generate in (True, False):
            for variables in variables_list:
                right = python_render(source, messages, generate, variables, bos, eos)
                got = render(model, messages, generate, source, variables=variables)
                if right is None:
                    assert isinstance(got, tuple) and got[0] == CHAT_TEMPLATE, (messages, variables, got)
                else:
                    assert got == right, (messages, generate, variables)
                    n_rendered += 1
    return n_rendered


@pytest.mark.parametrize("name", sorted(published()) or ["none"])
def test_published_templates(model, name):
    templates = published()
    if not templates:
        pytest.skip("run tests/parity/make_templates.py")
    assert compare(model, templates[name]) > 0


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_features(model, name):
    assert compare(model, FEATURES[name], [{}]) > 0


def any_of_them(messages, generate):
    return True


# Built-in name -> the package's template, variables, and the conversations in which the package's is as the family
# published it: its llama strips no text, its phi3 ends without E, its gpt-oss lacks a line after instructions.
SAME = {
    "chatml": ("chatml", {}, any_of_them),
    "llama3": ("llama3", {}, any_of_them),
    "gemma": ("gemma3", {}, any_of_them),
    "phi3": ("phi3", {}, lambda messages, generate: generate),
    "phi4": ("phi4", {}, any_of_them),
    "zephyr": ("zephyr", {}, any_of_them),
    "qwen3": ("qwen3", {}, any_of_them),
    "qwen3 off": ("qwen3", {"enable_thinking": False}, any_of_them),
    "lfm2": ("liquid_lfm2", {}, any_of_them),
    "llama2": ("llama", {}, lambda messages, generate: all(m["content"].strip() == m["content"] for m in messages)),
    "gpt-oss": ("gptoss", {}, lambda messages, generate: messages[0]["role"] != "system"),
}


@pytest.mark.parametrize("case", sorted(SAME))
def test_built_in_templates(model, case):
    templates, (name, variables, same) = published(), SAME[case]
    if not templates:
        pytest.skip("run tests/parity/make_templates.py")
    bos, eos = bos_eos(model)
    n_equal = 0
    for messages in CONVERSATIONS:
        for generate in (True, False):
            right = python_render(templates[name], messages, generate, variables, bos, eos)
            got = render(model, messages, generate, name=case.split()[0], variables=variables)
            if right is not None and not isinstance(got, tuple) and same(messages, generate):
                assert got == right, (messages, generate)
                n_equal += 1
    assert n_equal >= 8


def test_errors_name_the_alternatives(model):
    hello = [{"role": "user", "content": "Hello"}]
    code, message = render(model, hello, True, "{% include 'x' %}")
    assert code == CHAT_TEMPLATE and "include" in message
    code, message = render(model, hello, True)  # the toy has none
    assert code == CHAT_TEMPLATE and "template_name: chatml, llama2" in message and "ENGINE_SPECIAL_ALL" in message
    assert render(model, hello, True, name="nonsense")[0] == 10
    assert render(model, hello, True, "{{ x }}", name="chatml")[0] == 10
    code, message = render(model, hello, True, "{{ raise_exception('no ' + messages[0].role) }}")
    assert code == CHAT_TEMPLATE and "no user" in message
    assert render(model, hello, True, "{{ strftime_now('%d') }}", now=0)[0] == CHAT_TEMPLATE


@pytest.mark.parametrize("source", [
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(9000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ 'x' * 100000000000 }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "{{ 9223372036854775807 + 1 }}", "{{ 1 // 0 }}", "{{ 'a' + 1 }}", "{{ none.x.y }}",
    "{{", "{% if", "{% for x in %}", "{{ 'x }}", "{% endif %}", "{% if 1 %}", "{{ 1 + }}", "{# x",
])  # fmt: skip
def test_hostile_templates_are_refused(model, source):
    got = render(model, [{"role": "user", "content": "Hello"}], True, source)
    assert isinstance(got, tuple) and got[0] == CHAT_TEMPLATE, got
