"""`TemplateSandbox`: runs chat templates that nobody has read, within the limits of a `TemplateBudget`.

Nothing of a template is computed while it is compiled. While it renders, it can reach only the values it
is given, it can change none of them, and all it does is counted.
"""

# ruff: noqa: ANN401 (values of templates are of any type)
# mypy: disable-error-code="explicit-override"
# (typing.override needs 3.12)

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes, pass_context, pass_environment
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro

from octavo.models.template_budget import TemplateBudget
from octavo.models.template_growth import TemplateLimitError
from octavo.models.template_metering import CONCAT, HANDLE, SPEND, meter

MAX_TEMPLATE_CHARACTERS = 1 << 18
"""Of a template's text: the longest that models come with have a tenth of it."""

_OPERATORS = frozenset({"+", "*", "**", "%"})
_REFUSED_FILTERS = ("pprint", "urlize", "wordwrap", "xmlattr", "random")
_LOOKING_AT_NO_CONTENT = frozenset(
    {"length", "defined", "undefined", "none", "mapping", "iterable", "sequence"}
)
"""Filters and tests that take no longer for a long conversation: some templates ask for it in each turn."""
_REFUSED_ATTRIBUTES = frozenset({"encode", "maketrans", "to_bytes", "translate"})


class TemplateSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """A jinja2 environment as model authors test with, whose overlays each render one conversation.

    Attributes:
        budget: what the rendering may still do.
    """

    intercepted_binops = _OPERATORS
    budget: TemplateBudget

    def __init__(self, filters: Mapping[str, Callable[..., Any]], names: Mapping[str, object]) -> None:
        """Set up an environment.

        Args:
            filters: what templates may use besides jinja2's own filters.
            names: what templates find without being given it.
        """
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_counted_output,
            extensions=[jinja2.ext.loopcontrols, _GenerationTag],
        )
        self.budget = TemplateBudget()
        for name in _REFUSED_FILTERS:
            del self.filters[name]
        self.filters.update(filters)
        for table in (self.filters, self.tests):
            table.update({name: _counted(name, function) for name, function in [*table.items()]})
        self.filters |= {SPEND: _spend, HANDLE: _handle, CONCAT: _concat}
        del self.globals["lipsum"]
        self.globals.update(names)

    def compile_template(self, source: str) -> "CompiledTemplate":
        """Compile a template; what it can fail with is any exception.

        Raises:
            TemplateLimitError: the text is too long.
        """
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise TemplateLimitError(
                f"it has {len(source):,} characters, more than {MAX_TEMPLATE_CHARACTERS:,}"
            )
        tree = meter(self.parse(source), self)
        return CompiledTemplate(self, self.compile(tree, filename="<chat template>"))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read this attribute."""
        return attr not in _REFUSED_ATTRIBUTES and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator of `intercepted_binops`."""
        self.budget.admit(operator, left, [right])
        return super().call_binop(context, operator, left, right)

    # The names leave every keyword to what is called, as in the class above.
    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """A call of a function, method or macro; a macro's body counts itself."""
        if isinstance(__obj, Macro):
            __self.budget.spend(1)
        else:
            args = tuple(_materialized(argument) for argument in args)
            __self._admit_call(getattr(__obj, "__wrapped__", __obj), [*args, *kwargs.values()])
        return super().call(__context, __obj, *args, **kwargs)

    def _admit_call(self, function: Any, arguments: list[Any]) -> None:
        name, subject = getattr(function, "__name__", ""), getattr(function, "__self__", None)
        if name == "join" and isinstance(subject, str) and arguments:  # the filter has them the other way
            subject, arguments = arguments[0], [subject]
        if not isinstance(subject, str | list | tuple):
            subject = None  # a look-up in a message does not handle what is in the message
        self.budget.admit(name, subject, arguments)


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}`` … ``{% endgeneration %}``: marks what the model wrote; here, its text alone."""

    tags = {"generation"}  # noqa: RUF012 (as the base class has it)

    def parse(self, parser: Parser) -> nodes.Node:
        """The body in a scope of its own, as the tag has in training."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line, environment=self.environment)


class CompiledTemplate:
    """A template ready to run, any number of times and on any thread."""

    def __init__(self, sandbox: TemplateSandbox, code: Any) -> None:
        self._sandbox = sandbox
        self._code = code

    def render(self, names: Mapping[str, object]) -> str:
        """The text; what it can fail with is any exception.

        Raises:
            TemplateLimitError: the template does too much.
        """
        sandbox = self._sandbox.overlay()
        sandbox.budget = TemplateBudget()
        template = sandbox.template_class.from_code(sandbox, self._code, sandbox.make_globals(None))
        text = template.render(names)
        sandbox.budget.spend_on(text)
        return text


def _budget_of(environment: jinja2.Environment) -> TemplateBudget:
    if not isinstance(environment, TemplateSandbox):
        raise TypeError("a template of another environment")
    return environment.budget


def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter or test with everything it works on counted first."""
    is_passed_something = hasattr(function, "jinja_pass_arg")  # the context or a part of it, in front

    @functools.wraps(function)
    def counted(passed: Any, /, *args: Any, **kwargs: Any) -> Any:
        values = [_materialized(argument) for argument in args]
        budget = _budget_of(getattr(passed, "environment", passed))
        if name in _LOOKING_AT_NO_CONTENT:
            budget.spend(1)
        else:
            budget.admit(name, values[0], [*values[1:], *kwargs.values()])
        return function(passed, *values, **kwargs) if is_passed_something else function(*values, **kwargs)

    return counted if is_passed_something else pass_environment(counted)


def _materialized(value: Any) -> Any:
    """What a lazy filter gives, as a list: nobody can know the size of what is not there yet."""
    is_lazy = isinstance(value, Iterator) and not isinstance(value, LoopContext)
    return list(value) if is_lazy else value


@pass_context
def _counted_output(context: Context, value: Any) -> Any:
    _budget_of(context.environment).spend_on(value)
    return value


@pass_context
def _spend(context: Context, steps: int) -> bool:
    _budget_of(context.environment).spend(steps)
    return True


@pass_context
def _handle(context: Context, value: Any) -> Any:
    _budget_of(context.environment).spend_on(value)
    return value


@pass_context
def _concat(context: Context, values: list[Any]) -> str:
    _budget_of(context.environment).spend_on(values)
    return "".join(map(str, values))
