"""The command `anchormoe-bench data`: list the datasets with their state and hazards, or fetch their originals."""

import os

from rich import box
from rich.console import Console
from rich.table import Table

from anchormoe.data.catalogue import DatasetInfo, catalogue, info, raise_unknown
from anchormoe.data.containers import ContainerError
from anchormoe.data.dataset import load
from anchormoe.data.download import CACHE_VARIABLE, cache_folder, cached_path, fetch
from anchormoe.data.formats import verified_table
from anchormoe.data.hazards import find_hazards
from anchormoe.errors import UserError

USAGE = """usage: anchormoe-bench data [list]
       anchormoe-bench data fetch [name...] [data.mirror=<folder or URL>]"""
_PIPE_WIDTH = 100  # rich assumes 80 columns where there is no terminal, too few for the table


def main(args: list[str]) -> int:
    """Run the command; anything the user can fix is a UserError."""
    command, *rest = args or ["list"]
    console = _console()
    if command in ("-h", "--help", "help"):
        console.print(USAGE, markup=False)
    elif command == "list":
        if rest:
            raise UserError(
                f"data list takes no arguments, received {' '.join(rest)!r}; see anchormoe-bench data --help"
            )
        _print_datasets(console)
    elif command == "fetch":
        _fetch(rest, console)
    else:
        raise_unknown("data command", command, ("list", "fetch"))
    return 0


def _console() -> Console:
    console = Console()
    has_width = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if has_width else Console(width=_PIPE_WIDTH)


def _print_datasets(console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("dataset", no_wrap=True)
    table.add_column("rows x\nfeatures", justify="right", no_wrap=True)
    datasets = catalogue()
    longest = max(len(name) for dataset in datasets.values() for name in dataset.variants)
    table.add_column("variants", max_width=longest, overflow="fold")
    for heading in ("source", "where: verified", "hazards"):
        table.add_column(heading, overflow="fold")  # a narrow terminal wraps, nothing is cut off
    for dataset in datasets.values():
        table.add_row(*_row(dataset))
    console.print(table)
    console.print("Rows, features and hazards are those of the first variant. Licences and citations: data/README.md")
    console.print(
        f"Cache of downloaded originals: {cache_folder()} (set {CACHE_VARIABLE} to move it)",
        soft_wrap=True,
        markup=False,
    )


def _row(dataset: DatasetInfo) -> list[str]:
    source = "\n".join(part for part in (dataset.path or _home(dataset), dataset.licence) if part)
    variants = ", ".join(dataset.variants)
    kind = "embedded" if dataset.path is None else "file"
    state = []
    try:
        default = load(dataset)
        state.append(f"{kind}: yes")
        shape = f"{default.X.shape[0]} x {default.X.shape[1]}"
        hazards = "\n".join(find_hazards(dataset, default).describe()) or "none"
    except UserError as error:
        state.append(f"{kind}: NO")
        shape, hazards = "?", str(error) if dataset.path else "?"
    cached = cached_path(dataset)
    if cached is not None:
        try:
            verified_table(cached.read_bytes(), dataset)
            state.append(f"{cached.name}: yes")
        except (ContainerError, OSError):
            state.append(f"{cached.name}: NO")
    return [dataset.name, shape, variants, source, "\n".join(state), hazards]


def _home(dataset: DatasetInfo) -> str:
    """Return the repository and the dataset's number there, or the whole address where it has none."""
    number = next((part for part in dataset.homepage.split("/") if part.isdigit()), None)
    repository = "OpenML" if "openml" in dataset.homepage else "UCI"
    return dataset.homepage if number is None else f"{repository} {number}"


def _fetch(args: list[str], console: Console) -> None:
    mirror = None
    chosen = []
    for argument in args:
        key, equals, value = argument.partition("=")
        if not equals:
            chosen.append(info(argument))
        elif key == "data.mirror":
            mirror = value or None
        else:
            raise_unknown("setting of data fetch", key, ("data.mirror",))
    for dataset in chosen or [dataset for dataset in catalogue().values() if dataset.path is None]:
        if dataset.path is not None:
            raise UserError(f"dataset {dataset.name!r} is read from {dataset.path}, there is nothing to fetch")
        fetched = fetch(dataset, mirror=mirror)
        kind = "the original file" if fetched.is_original else "another container, same values"
        state = "already cached" if fetched.address == str(fetched.path) else f"from {fetched.address}"
        console.print(f"{dataset.name}: {fetched.path} verified ({kind}), {state}", soft_wrap=True, markup=False)
