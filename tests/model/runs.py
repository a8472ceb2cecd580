"""The configurations of the model: spec/model/runs.toml, what each of them covers, and what TLC is given for it."""

import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Size: TypeAlias = Literal["test", "large"]
SIZES: tuple[Size, ...] = ("large", "test")

SPEC = Path(__file__).resolve().parents[2] / "spec" / "model"

MODULES = ("Table", "Roots", "Joint", "Gate")  # each a model with its invariants
PROPERTY = "EveryoneIsDone"  # what must come to pass, where a run is fair

# A feature is there where a plan uses one of these words, or where the bounds of the run let it be.
FEATURES: Mapping[str, str] = {
    "keys": r"\bKeyed\(", "watermarks": r"\bAdvancing\(", "overwrite": r"\bOverwrite\b", "replace": r"\bReplace\b",
    "rollback": r"\bRollback\b", "rewind": r"\b(Rewind|Forget)\b", "streams": r"\bBatch\(", "tags": r"\bTag\b", "gc": r"Gc\b",
    "two gcs": r"\b\w*Gc\b.*\b\w*Gc\b", "readers": r"\bRead\b", "two processes": r"\bFinish\(", "giving up": r"\bGiveUp\(",
    "recovery": r"\bRerun\(",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One configuration. module: the one with all steps and invariants; plans: process -> what it does; off: rules that are switched off;
    expect: the invariant that then breaks, None: all hold; guide: a condition that the states on the way to that all meet, so that it is
    found soon; versions, lost: bounds by size; declared: where the source begins is known from the first version on; sizes: in which it
    is run; fair: whether everyone's coming to an outcome is checked as well."""

    name: str
    why: str
    module: str
    plans: Mapping[Size, Mapping[str, str]]
    helping: bool
    declared: bool
    wide: bool
    one_by_one: bool
    off: tuple[str, ...]
    expect: str | None
    guide: str
    versions: Mapping[Size, int]
    lost: Mapping[Size, int]
    sizes: tuple[Size, ...]
    fair: bool

    def features(self, size: Size) -> frozenset[str]:
        """What this configuration has in it, by its plans and bounds."""
        text = " ".join(self.plans[size].values())
        found = {name for name, word in FEATURES.items() if re.search(word, text)}
        if self.helping:
            found.add("helping")
        if self.lost[size]:
            found.add("lost answers")
        return frozenset(found)


ALL_FEATURES: tuple[str, ...] = (*FEATURES, "helping", "lost answers")


def load() -> list[Run]:
    """Every configuration, in the order of the file."""
    told = tomllib.loads((SPEC / "runs.toml").read_text("utf-8"))
    runs = [_run(each, expect=None) for each in told["holds"]]
    runs += [_run(each, expect=each["breaks"]) for each in told["without"]]
    assert len({run.name for run in runs}) == len(runs), "two configurations have one name"
    return runs


def _run(told: Mapping[str, object], *, expect: str | None) -> Run:
    plans = told["plans"]
    assert isinstance(plans, dict)
    large = told.get("large", {})
    assert isinstance(large, dict)
    versions, lost = int(str(told["versions"])), int(str(told.get("lost", 0)))
    off = told.get("off", [])
    assert isinstance(off, list)
    sizes: tuple[Size, ...] = ("large",) if told.get("large_only") else ("test", "large")
    return Run(
        name=str(told["name"]), why=str(told["why"]), module=str(told.get("module", "Table")),
        plans={"test": plans, "large": {**plans, **large.get("plans", {})}}, helping=bool(told.get("helping", False)),
        declared=bool(told.get("declared", True)), wide=bool(told.get("wide", False)), one_by_one=bool(told.get("one_by_one", False)),
        off=tuple(off), expect=expect, guide=str(told.get("guide", "TRUE")),
        versions={"test": versions, "large": int(large.get("versions", versions))},
        lost={"test": lost, "large": int(large.get("lost", lost))}, sizes=sizes, fair=bool(told.get("fair", False)),
    )  # fmt: skip


def module_of(run: Run, size: Size) -> str:
    """The module that TLC starts from: the plan of every process."""
    plans = " @@ ".join(f'("{name}" :> {plan})' for name, plan in run.plans[size].items())
    off = ", ".join(f'"{rule}"' for rule in run.off)
    return f"---- MODULE MC ----\nEXTENDS {run.module}\nPlans == {plans}\nRulesOff == {{{off}}}\nGuide == {run.guide}\n====\n"


def settings_of(run: Run, size: Size) -> str:
    """TLC's settings: the constants, and what to check."""
    constants = {"MaxVersion": str(run.versions[size]), "Gone": "Gone"}
    if run.module == "Table":
        constants |= {
            "MaxLost": str(run.lost[size]), "Helping": _truth(run.helping), "Declared": _truth(run.declared), "Wide": _truth(run.wide),
            "OneByOne": _truth(run.one_by_one), "Stands": "Stands",
        }  # fmt: skip
    lines = [f"SPECIFICATION {'FairSpec' if run.fair else 'Spec'}", "CONSTANTS"]
    lines += [f"    {name} = {value}" for name, value in constants.items()]
    lines += ["    Plan <- Plans", "    Off <- RulesOff"]
    lines += [f"INVARIANT {name}" for name in invariants(run.module)]
    if run.guide != "TRUE":
        lines.append("CONSTRAINT Guide")
    if run.fair:
        lines.append(f"PROPERTY {PROPERTY}")
    return "\n".join(lines) + "\n"


def invariants(*modules: str) -> Sequence[str]:
    """What modules say must always hold, in their order; of all of them where none is named."""
    texts = [(SPEC / f"{module}.tla").read_text("utf-8") for module in modules or MODULES]
    return [name for text in texts for name in re.findall(r"^INVARIANTS?: (.*)$", text, re.MULTILINE)[0].split()]


def uncovered(runs: Sequence[Run], size: Size) -> list[tuple[str, str]]:
    """The pairs of features that no configuration with all rules on has together."""
    covered = {pair for run in runs if run.expect is None and size in run.sizes for pair in itertools.combinations(_sorted(run, size), 2)}
    return [pair for pair in itertools.combinations(ALL_FEATURES, 2) if pair not in covered]


def _sorted(run: Run, size: Size) -> list[str]:
    features = run.features(size)
    return [name for name in ALL_FEATURES if name in features]


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"
