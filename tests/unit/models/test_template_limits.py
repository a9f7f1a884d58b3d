"""Templates that try to take all time or memory, and those that look a little like them and must work."""

import pytest

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.chat_template import ChatTemplate
from octavo.models.template_budget import MAX_STEPS
from octavo.models.template_growth import MAX_CHARACTERS
from octavo.models.template_sandbox import MAX_TEMPLATE_CHARACTERS

TOO_LARGE = f"more than {MAX_CHARACTERS:,} characters"
TOO_LONG = f"more than {MAX_STEPS:,} steps"
GROW = "{% set ns = namespace(s='x', l=[1]) %}"
EMPTY_LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HELLO = [{"role": "user", "content": "Hello"}]


def compiled(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", origin="m.gguf")


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ('{{ "a" * 200000000 }}', TOO_LARGE),
        ('{{ 200000000 * "a" }}', TOO_LARGE),
        ("{{ [[1] * 8000] * 8000 }}", TOO_LARGE),
        ('{{ "a" | center(1000000000) }}', TOO_LARGE),
        ('{{ "a".center(1000000000) }}', TOO_LARGE),
        ('{{ "a".zfill(1000000000) }}', TOO_LARGE),
        ('{{ ("\\t" * 1000).expandtabs(1000000) }}', TOO_LARGE),
        ('{{ ("a\n" * 1000000) | indent(100000) }}', TOO_LARGE),
        ('{{ "%1000000000d" % 1 }}', TOO_LARGE),
        ('{{ "%*d" % (1000000000, 1) }}', TOO_LARGE),
        ('{{ "%1000000000d" | format(1) }}', TOO_LARGE),
        ('{{ "{:>1000000000}".format(1) }}', TOO_LARGE),
        ('{{ "{:{}}".format(1, 1000000000) }}', TOO_LARGE),
        ('{{ ("a" * 10000).replace("a", "b" * 10000) }}', TOO_LARGE),
        ('{{ ("a" * 10000) | replace("a", "b" * 10000) }}', TOO_LARGE),
        ('{{ ("a" * 10000) | join("b" * 10000) }}', TOO_LARGE),
        ('{{ ("b" * 10000).join(range(10000) | map("string")) }}', TOO_LARGE),
        ("{{ [1] | batch(1000000000, 0) | list }}", TOO_LARGE),
        ("{{ [1] | slice(1000000000) | list }}", TOO_LARGE),
        ("{{ ([[1] * 500] * 500) | sum(start=[]) }}", TOO_LARGE),
        ("{{ [1] | tojson(indent=1000000000) }}", TOO_LARGE),
        ("{{ 7 ** 3000000 }}", "more than 65,536 bits"),
        ("{{ 1.5 | round(1000000000) }}", TOO_LARGE),
        (GROW + "{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", TOO_LARGE),
        (GROW + "{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", TOO_LARGE),
        (GROW + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}", "576 items"),
        (EMPTY_LOOPS, TOO_LONG),
        ("{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}", TOO_LONG),
        ("{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}", TOO_LONG),
        ("{% for a in range(99999) %}" + "x" * 100_000 + "{% endfor %}", TOO_LONG),
        ("{% set s = 'x' * 8000000 %}{% for a in range(999) %}{{ s == s[:-1] }}{% endfor %}", TOO_LONG),
        ("{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n }}{% endmacro %}{{ m(60) }}", TOO_LONG),
        ("{% block b %}{% for i in range(99) %}{{ self.b() }}{% endfor %}{% endblock %}", "recursion"),
    ],
)  # fmt: skip
def test_a_template_that_does_too_much_is_stopped(source, limit):
    with pytest.raises(InvalidRequestError, match=limit) as caught:
        compiled(source).render(HELLO)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in x %}" * 25 + "{% endfor %}" * 25,
        "{% if x %}" * 120 + "{% endif %}" * 120,
        "{{ " + "(" * 30_000 + "1" + ")" * 30_000 + " }}",
        "{{ " + "9" * 5000 + " }}",
        "{% break %}",
        "{{ f(a=1, a=2) }}",
        "{% macro m(a, a) %}{% endmacro %}",
        '{% autoescape "a" * 1000000000 %}{% endautoescape %}',
        "x" * (MAX_TEMPLATE_CHARACTERS + 1),
        "{{ 1 | " + "f" * 100_000 + " }}",
    ],
)
def test_whatever_compiling_fails_with_is_a_short_load_error(source):
    with pytest.raises(ModelLoadError, match=r"^m\.gguf: the chat template is not valid: .") as caught:
        compiled(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("source", ['{{ "a" | center(1000000000) }}', '{{ "%1000000000d" % 1 }}'])
def test_nothing_is_computed_while_compiling(source):
    assert compiled(source).source == source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{{ "ab" * 3 }}|{{ [1] * 2 }}|{{ 2 ** 10 }}|{{ 7 % 4 }}', "ababab|[1, 1]|1024|3"),
        ('{{ "%s-%d" % ("a", 5) }}|{{ "{}:{}".format("a", 1) }}|{{ "%s" | format("é") }}', "a-5|a:1|é"),
        ('{{ "a" ~ 1 ~ none }}', "a1None"),
        ('{{ ["a", "b"] | join(", ") }}|{{ ", ".join(["a", "b"]) }}', "a, b|a, b"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages | map(attribute='content') | map('upper') | first }}", "HELLO"),
        ("{% for m in messages %}{{ loop is defined }}{{ loop.length }}{% endfor %}", "True1"),
        ("{% for i in [1, 2, 3] if i > 1 %}{{ loop.index }}{{ i }} {% endfor %}", "12 23 "),
        ("{% for i in [] %}{% else %}none{% endfor %}", "none"),
        ("{{ messages[::-1][0].content[1:3] }}", "el"),
        ("{% macro m(x) %}<{{ x }}{{ caller() }}>{% endmacro %}{% call m(1) %}2{% endcall %}", "<12>"),
        ("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = i %}{% endfor %}{{ ns.n }}", "2"),
        ("{% filter upper %}a{% endfilter %}{% set x %}b{% endset %}{{ x }}", "Ab"),
        ("{{ '<think>a</think>b'.split('</think>')[-1].lstrip('x') }}", "b"),
        ("{{ 1 < 2 < 3 }}{{ 'a' in 'abc' and messages[0].role == 'user' }}", "TrueTrue"),
    ],
)  # fmt: skip
def test_counting_changes_nothing(source, expected):
    assert compiled(source).render(HELLO) == expected


def test_a_long_conversation_is_far_from_the_limits():
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<|u|>' + m.content | trim ~ '</s>' }}"
        "{% else %}{{ '<|a|>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
    )
    messages = [
        {"role": role, "content": "word " * 200} for _ in range(1000) for role in ("user", "assistant")
    ]
    assert len(compiled(source).render(messages)) > 1_900_000


def test_every_rendering_has_a_budget_of_its_own():
    template = compiled("{% for i in range(99999) %}{% endfor %}" * 3)
    for _ in range(3):
        assert template.render(HELLO) == ""


def test_a_long_conversation_may_be_asked_for_its_length_in_every_turn():
    """As Qwen 3's template does."""
    source = "{% for m in messages %}{% set n = messages | length - loop.index0 %}{{ m.content }}{% endfor %}"
    messages = [{"role": "user", "content": "x" * 500}] * 1000
    assert len(compiled(source).render(messages)) == 500_000
