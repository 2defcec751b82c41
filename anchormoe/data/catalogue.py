"""The nine datasets: where they come from, what their tables look like, which columns are features and target.

Every dataset is one canonical float64 table with all features and all targets, in the column order of the original
file (power: the five sheets stacked). `content_sha256` is the hash of that table, see `containers.content_sha256`.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from anchormoe.errors import UserError

_UCI = "https://archive.ics.uci.edu/static/public"
_UCI_OLD = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_OPENML = "https://www.openml.org/data"
_EVIDENTIAL = (
    "https://raw.githubusercontent.com/aamini/evidential-deep-learning/"
    "a088a92a3b63cc918a332585be14e77d64b25764/neurips2020/data/uci"
)
_CC_BY = "CC BY 4.0"


@dataclass(frozen=True)
class Variant:
    """One learning task on the table: feature columns, target column, and rows [start, stop) where not all."""

    features: tuple[str, ...]
    target: str
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What is known about one dataset before it is read. The first variant is the default."""

    name: str
    title: str
    file_name: str  # of the original, as a mirror folder holds it
    archive_member: str  # the original's name inside its home's zip archive
    columns: tuple[str, ...]
    rows: int
    variants: dict[str, Variant]
    urls: tuple[str, ...]  # tried in this order
    homepage: str
    licence: str
    citation: str
    content_sha256: str
    original_sha256: str
    original_bytes: int
    licence_note: str = ""

    @property
    def default_variant(self) -> str:
        return next(iter(self.variants))

    @property
    def targets(self) -> tuple[str, ...]:
        """Columns that some variant predicts, each once."""
        return tuple(dict.fromkeys(variant.target for variant in self.variants.values()))

    def variant(self, name: str | None) -> tuple[str, Variant]:
        """(name, variant) for a variant name, or the default for None."""
        chosen = self.default_variant if name is None else name
        if chosen not in self.variants:
            raise_unknown(f"variant of dataset {self.name!r}", chosen, self.variants)
        return chosen, self.variants[chosen]


def raise_unknown(kind: str, received: str, existing: Iterable[str]) -> NoReturn:
    """One line that names what exists and, where there is one, the nearest name."""
    names = list(existing)
    near = difflib.get_close_matches(received, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UserError(f"unknown {kind}: expected one of {', '.join(names)}, received {received!r}{hint}")


def info(name: str) -> DatasetInfo:
    if name not in DATASETS:
        raise_unknown("dataset", name, DATASETS)
    return DATASETS[name]


def _standard(columns: tuple[str, ...], target: str) -> dict[str, Variant]:
    return {"standard": Variant(tuple(column for column in columns if column != target), target)}


def _names(line: str) -> tuple[str, ...]:
    return tuple(line.split())


_BOSTON = _names("CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT MEDV")
_CONCRETE = _names(
    "cement blast_furnace_slag fly_ash water superplasticizer coarse_aggregate fine_aggregate age compressive_strength"
)
_ENERGY = _names("X1 X2 X3 X4 X5 X6 X7 X8 Y1 Y2")
_KIN8NM = _names("theta1 theta2 theta3 theta4 theta5 theta6 theta7 theta8 y")
_NAVAL = _names("lp v GTT GTn GGn Ts Tp T48 T1 T2 P48 P1 P2 Pexh TIC mf compressor_decay turbine_decay")
_POWER = _names("AT V AP RH PE")
_POWER_SHEET_ROWS = 9568
_PROTEIN = _names("RMSD F1 F2 F3 F4 F5 F6 F7 F8 F9")
_WINE = _names(
    "fixed_acidity volatile_acidity citric_acid residual_sugar chlorides free_sulfur_dioxide total_sulfur_dioxide "
    "density pH sulphates alcohol quality"
)
_YACHT = _names(
    "buoyancy_position prismatic_coefficient length_displacement_ratio beam_draught_ratio length_beam_ratio "
    "froude_number residuary_resistance"
)

_ALL = (
    DatasetInfo(
        name="boston",
        title="Boston Housing",
        file_name="housing.data",
        archive_member="housing.data",
        columns=_BOSTON,
        rows=506,
        variants=_standard(_BOSTON, "MEDV"),
        urls=(f"{_OPENML}/download/52643/boston.arff", f"{_UCI_OLD}/housing/housing.data"),
        homepage="https://www.openml.org/d/531",
        licence="public domain",
        citation=(
            "Harrison, D. and Rubinfeld, D. L. (1978). Hedonic prices and the demand for clean air. "
            "Journal of Environmental Economics and Management 5, 81-102."
        ),
        content_sha256="bb9509cda8e4107522d803c47bc5a4eac484e7f2a6cea61da0dafadd510944a6",
        original_sha256="baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
        original_bytes=49082,
    ),
    DatasetInfo(
        name="concrete",
        title="Concrete Compressive Strength",
        file_name="Concrete_Data.xls",
        archive_member="Concrete_Data.xls",
        columns=_CONCRETE,
        rows=1030,
        variants=_standard(_CONCRETE, "compressive_strength"),
        urls=(
            f"{_UCI}/165/concrete+compressive+strength.zip",
            f"{_UCI_OLD}/concrete/compressive/Concrete_Data.xls",
            f"{_EVIDENTIAL}/concrete/Concrete_Data.xls",
        ),
        homepage="https://archive.ics.uci.edu/dataset/165/concrete+compressive+strength",
        licence=_CC_BY,
        citation=(
            "Yeh, I-C. (1998). Concrete Compressive Strength [dataset]. UCI Machine Learning Repository. "
            "https://doi.org/10.24432/C5PK67"
        ),
        content_sha256="d49cbc4224db2ce0ee37c13f5327d6bf877d4c34e838aaf75b1acc835eb0d45c",
        original_sha256="710076c66b9ca3f8050e7942f3dcbdbe04013534daeb0077ffd3079a52d8e0c4",
        original_bytes=124928,
    ),
    DatasetInfo(
        name="energy",
        title="Energy Efficiency",
        file_name="ENB2012_data.xlsx",
        archive_member="ENB2012_data.xlsx",
        columns=_ENERGY,
        rows=768,
        variants={"heating": Variant(_ENERGY[:8], "Y1"), "cooling": Variant(_ENERGY[:8], "Y2")},
        urls=(
            f"{_UCI}/242/energy+efficiency.zip",
            f"{_UCI_OLD}/00242/ENB2012_data.xlsx",
            f"{_EVIDENTIAL}/energy-efficiency/ENB2012_data.xlsx",
        ),
        homepage="https://archive.ics.uci.edu/dataset/242/energy+efficiency",
        licence=_CC_BY,
        citation=(
            "Tsanas, A. and Xifara, A. (2012). Energy Efficiency [dataset]. UCI Machine Learning Repository. "
            "https://doi.org/10.24432/C51307"
        ),
        content_sha256="f7be4db03a91756968016d8cdfc0bb16ef4e592d4f1b7b4f511e3c1656186345",
        original_sha256="0089fcffc1415e41e2ff63730cca5280efe54fc43d722dfde1b0aaa808e35dc4",
        original_bytes=76189,
    ),
    DatasetInfo(
        name="kin8nm",
        title="Kinematics of an 8-link robot arm (8nm)",
        file_name="kin8nm.csv",
        archive_member="kin8nm.csv",
        columns=_KIN8NM,
        rows=8192,
        variants=_standard(_KIN8NM, "y"),
        urls=(
            f"{_OPENML}/download/3626/dataset_2175_kin8nm.arff",
            f"{_OPENML}/get_csv/3626/dataset_2175_kin8nm.arff",
            f"{_EVIDENTIAL}/kin8nm/dataset_2175_kin8nm.csv",
        ),
        homepage="https://www.openml.org/d/189",
        licence="public",
        citation=(
            "Rasmussen, C. E., Neal, R. M., Hinton, G. E., van Camp, D., Revow, M., Ghahramani, Z., Kustra, R. and "
            "Tibshirani, R. (1996). The DELVE manual. University of Toronto."
        ),
        content_sha256="7fc9a2bc410a0bd53d388d0fbc9433c2ba3dce778946a8d52c741bf68e669986",
        original_sha256="7b9bf0301ac936d88122557a151e1ba8f1ebc278fcf46d9f3c6d462debdbc8ad",
        original_bytes=1130529,
    ),
    DatasetInfo(
        name="naval",
        title="Condition Based Maintenance of Naval Propulsion Plants",
        file_name="naval-data.txt",
        archive_member="data.txt",
        columns=_NAVAL,
        rows=11934,
        variants={
            "compressor": Variant(_NAVAL[:16], "compressor_decay"),
            "turbine": Variant(_NAVAL[:16], "turbine_decay"),
            # The published ablations gave the other target to the model as a 17th input.
            "turbine_with_compressor": Variant(_NAVAL[:17], "turbine_decay"),
        },
        urls=(
            f"{_UCI}/316/condition+based+maintenance+of+naval+propulsion+plants.zip",
            f"{_UCI_OLD}/00316/UCI%20CBM%20Dataset.zip",
            f"{_EVIDENTIAL}/naval/data.txt",
        ),
        homepage="https://archive.ics.uci.edu/dataset/316/condition+based+maintenance+of+naval+propulsion+plants",
        licence=_CC_BY,
        citation=(
            "Coraddu, A., Oneto, L., Ghio, A., Savio, S., Anguita, D. and Figari, M. (2014). Condition Based "
            "Maintenance of Naval Propulsion Plants [dataset]. UCI Machine Learning Repository. "
            "https://doi.org/10.24432/C5K31K. Its authors ask to cite: Machine learning approaches for improving "
            "condition-based maintenance of naval propulsion plants. Journal of Engineering for the Maritime "
            "Environment. https://doi.org/10.1177/1475090214540874"
        ),
        licence_note="as UCI publishes it; the README of 2014 inside the archive prohibits commercial use",
        content_sha256="19aa84ade8a9e155f667ed8b7b03945f8b6ef5c7698373dd62db9372681ac695",
        original_sha256="de0ea69da1efaab8b9655ffed828547d10dd68c1fb8c6e0163e6a988def393a6",
        original_bytes=3448926,
    ),
    DatasetInfo(
        name="power",
        title="Combined Cycle Power Plant",
        file_name="Folds5x2_pp.xlsx",
        archive_member="Folds5x2_pp.xlsx",
        columns=_POWER,
        rows=5 * _POWER_SHEET_ROWS,
        # The sheets hold the same records in five orders: the published runs read Sheet1, the canonical UCI
        # collection with its fixed index files is Sheet5.
        variants={
            f"sheet{k + 1}": Variant(_POWER[:4], "PE", (k * _POWER_SHEET_ROWS, (k + 1) * _POWER_SHEET_ROWS))
            for k in range(5)
        },
        urls=(
            f"{_UCI}/294/combined+cycle+power+plant.zip",
            f"{_UCI_OLD}/00294/CCPP.zip",
            f"{_EVIDENTIAL}/power-plant/Folds5x2_pp.xlsx",
        ),
        homepage="https://archive.ics.uci.edu/dataset/294/combined+cycle+power+plant",
        licence=_CC_BY,
        citation=(
            "Tufekci, P. and Kaya, H. (2014). Combined Cycle Power Plant [dataset]. UCI Machine Learning Repository. "
            "https://doi.org/10.24432/C5002N"
        ),
        content_sha256="91c8ac0bbceebd697323a7039462bbe95f4928492b53b71887785acd3bcf431f",
        original_sha256="ccd490981db2a2f079963b3d9f0aea30d9d338900a0285428dfc6385396f4651",
        original_bytes=2029440,
    ),
    DatasetInfo(
        name="protein",
        title="Physicochemical Properties of Protein Tertiary Structure",
        file_name="CASP.csv",
        archive_member="CASP.csv",
        columns=_PROTEIN,
        rows=45730,
        variants=_standard(_PROTEIN, "RMSD"),
        urls=(
            f"{_UCI}/265/physicochemical+properties+of+protein+tertiary+structure.zip",
            f"{_UCI_OLD}/00265/CASP.csv",
            f"{_EVIDENTIAL}/protein/CASP.csv",
        ),
        homepage="https://archive.ics.uci.edu/dataset/265/physicochemical+properties+of+protein+tertiary+structure",
        licence=_CC_BY,
        citation=(
            "Rana, P. (2013). Physicochemical Properties of Protein Tertiary Structure [dataset]. UCI Machine "
            "Learning Repository. https://doi.org/10.24432/C5QW3H"
        ),
        content_sha256="80963873e80481e69ff2d3d409c5c94f6c9eedb3b755fa98d3c7974a25fd70ad",
        original_sha256="4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
        original_bytes=3528710,
    ),
    DatasetInfo(
        name="wine",
        title="Wine Quality (red)",
        file_name="winequality-red.csv",
        archive_member="winequality-red.csv",
        columns=_WINE,
        rows=1599,
        variants=_standard(_WINE, "quality"),
        urls=(f"{_UCI}/186/wine+quality.zip", f"{_UCI_OLD}/wine-quality/winequality-red.csv"),
        homepage="https://archive.ics.uci.edu/dataset/186/wine+quality",
        licence=_CC_BY,
        citation=(
            "Cortez, P., Cerdeira, A., Almeida, F., Matos, T. and Reis, J. (2009). Wine Quality [dataset]. UCI Machine "
            "Learning Repository. https://doi.org/10.24432/C56S3T"
        ),
        content_sha256="4577f1f5a2058dd2d62f1a7b5863ed36228923dc0b4c29e50873812b0c226f1d",
        original_sha256="4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
        original_bytes=84199,
    ),
    DatasetInfo(
        name="yacht",
        title="Yacht Hydrodynamics",
        file_name="yacht_hydrodynamics.data",
        archive_member="yacht_hydrodynamics.data",
        columns=_YACHT,
        rows=308,
        variants=_standard(_YACHT, "residuary_resistance"),
        urls=(
            f"{_UCI}/243/yacht+hydrodynamics.zip",
            f"{_UCI_OLD}/00243/yacht_hydrodynamics.data",
            f"{_EVIDENTIAL}/yacht/yacht_hydrodynamics.data",
        ),
        homepage="https://archive.ics.uci.edu/dataset/243/yacht+hydrodynamics",
        licence=_CC_BY,
        citation=(
            "Gerritsma, J., Onnink, R. and Versluis, A. (1981). Yacht Hydrodynamics [dataset]. UCI Machine Learning "
            "Repository. https://doi.org/10.24432/C5XG7R"
        ),
        content_sha256="943d91022f920fd13f76e68e152b0700f3b5ac9a29c605bf66d92523cb0bd84c",
        original_sha256="00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
        original_bytes=11487,
    ),
)

DATASETS: dict[str, DatasetInfo] = {entry.name: entry for entry in _ALL}
