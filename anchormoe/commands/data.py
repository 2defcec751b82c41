"""The command `anchormoe-bench data`: list the datasets, look at one, add one, or fetch the public originals."""

from urllib.parse import urlsplit

from rich import box
from rich.console import Console
from rich.table import Table

from anchormoe.commands.options import wide_console
from anchormoe.commands.own_data import KEYS, own_dataset
from anchormoe.commands.preflight import show_preflight
from anchormoe.data.catalogue import DatasetInfo, catalogue, info, raise_unknown
from anchormoe.data.containers import ContainerError
from anchormoe.data.dataset import load
from anchormoe.data.download import CACHE_VARIABLE, cache_folder, cached_path, fetch
from anchormoe.data.formats import verified_table
from anchormoe.data.hazards import find_hazards
from anchormoe.data.own import write_description
from anchormoe.errors import UserError

USAGE = """usage: anchormoe-bench data [list]
       anchormoe-bench data add <file, folder or openml:id> target=<column> [name=...] [groups=<column>]
                            [time=<column>] [categorical=<columns>] [features=<columns>]
       anchormoe-bench data check <name>
       anchormoe-bench data fetch [name...] [data.mirror=<folder or URL>]

add looks at a table and writes conf/dataset/<name>.yaml, check looks at a dataset again (docs/your-data.md)"""
_NAME_WIDTH = 10


def main(args: list[str]) -> int:
    """Run the command; anything the user can fix is a UserError."""
    command, *rest = args or ["list"]
    console = wide_console()
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
    elif command == "add":
        _add(rest, console)
    elif command == "check":
        _check(rest, console)
    else:
        raise_unknown("data command", command, ("list", "add", "check", "fetch"))
    return 0


def _print_datasets(console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("dataset", max_width=_NAME_WIDTH, overflow="fold")
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
    """Return the repository and the dataset's number there, or the site where it has none."""
    number = next((part for part in dataset.homepage.split("/") if part.isdigit()), None)
    repository = "OpenML" if "openml" in dataset.homepage else "UCI"
    return urlsplit(dataset.homepage).netloc.removeprefix("www.") if number is None else f"{repository} {number}"


def _add(args: list[str], console: Console) -> None:
    """Look at a table, then write its description; a mistake leaves nothing behind."""
    path, options = "", []
    for argument in args:
        if "=" in argument:
            options.append(argument)
        elif path:
            raise UserError(f"data add takes one file, received {path} and {argument}")
        else:
            path = argument
    info, rest = own_dataset([f"data={path}", *options])
    if rest or info is None:
        raise UserError(f"data add takes {', '.join(f'{key}=' for key in KEYS[1:])}, received {' '.join(rest)}")
    show_preflight(info, console)
    written = write_description(info)
    console.print(f"wrote {written}; next: anchormoe-bench dataset={info.name}", soft_wrap=True, markup=False)


def _check(args: list[str], console: Console) -> None:
    if len(args) != 1:
        raise UserError(f"data check takes the name of a dataset, received {' '.join(args) or 'nothing'}")
    show_preflight(info(args[0]), console)


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
    for dataset in chosen or [dataset for dataset in catalogue().values() if dataset.urls]:
        if dataset.path is not None:
            raise UserError(f"dataset {dataset.name!r} is read from {dataset.path}, there is nothing to fetch")
        if not dataset.urls:
            raise UserError(f"dataset {dataset.name!r} ships with the package and has no public original to fetch")
        fetched = fetch(dataset, mirror=mirror)
        kind = "the original file" if fetched.is_original else "another container, same values"
        state = "already cached" if fetched.address == str(fetched.path) else f"from {fetched.address}"
        console.print(f"{dataset.name}: {fetched.path} verified ({kind}), {state}", soft_wrap=True, markup=False)
