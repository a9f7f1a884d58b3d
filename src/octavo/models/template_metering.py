"""Rewrites a template's syntax tree so that everything in it that can repeat or grow is counted.

Calls, operators, filters, tests and output pass through the sandbox anyhow. What jinja2 compiles straight to
Python does not: loops, the bodies of macros, comparisons, slices and ``~``. They get filters here, under
names that no template can spell.
"""

# ruff: noqa: N802 (jinja2 looks methods up by the names of node classes)

from typing import TypeVar

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.visitor import NodeTransformer

SPEND, HANDLE, CONCAT = "<spend>", "<handle>", "<concat>"
"""Filters: counts as many steps as its value says; counts its value; joins a list of values to text."""

_CHARACTERS_PER_NODE = 16
_STEPS_OF_COUNTING = 4
_WithBody = TypeVar("_WithBody", nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


def meter(template: nodes.Template, environment: Environment) -> nodes.Template:
    """The same template, counted.

    Raises:
        TemplateSyntaxError: it switches automatic escaping, which could compute anything while compiling.
    """
    metered: nodes.Template = _Meter(environment).visit(template)
    return metered


class _Meter(NodeTransformer):
    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.For:
        if node.test is not None:
            counted = self._filtered(self._steps_of([node.test]), SPEND, node)
            node.test = nodes.And(counted, node.test, lineno=node.lineno, environment=self._environment)
        return self._with_counted_body(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        return self._with_counted_body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:
        return self._with_counted_body(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Block:
        return self._with_counted_body(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno, environment=self._environment)
        return self._filtered(parts, CONCAT, node)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = self._filtered(node.expr, HANDLE, node)
        for operand in node.ops:
            operand.expr = self._filtered(operand.expr, HANDLE, node)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Getitem:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = self._filtered(node.node, HANDLE, node)
        return node

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier) -> nodes.Node:
        raise TemplateSyntaxError("autoescape is not supported", node.lineno)

    def _with_counted_body(self, node: _WithBody) -> _WithBody:
        steps = self._steps_of(node.body)
        self.generic_visit(node)
        counted = self._filtered(steps, SPEND, node)
        node.body.insert(0, nodes.ExprStmt(counted, lineno=node.lineno, environment=self._environment))
        return node

    def _steps_of(self, body: list[nodes.Node]) -> nodes.Const:
        """What executing all of this once costs at most, loops and calls in it not counted."""
        steps = _STEPS_OF_COUNTING
        for root in body:
            steps += 1 + sum(1 for _ in root.find_all(nodes.Node))
            steps += sum(len(text.data) // _CHARACTERS_PER_NODE for text in root.find_all(nodes.TemplateData))
        return nodes.Const(steps, lineno=body[0].lineno if body else 0, environment=self._environment)

    def _filtered(self, value: nodes.Expr, name: str, at: nodes.Node) -> nodes.Filter:
        return nodes.Filter(value, name, [], [], None, None, lineno=at.lineno, environment=self._environment)
