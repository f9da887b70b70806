"""File formats: models, arrays, images and UAI networks.  Every file is written completely or not at all."""

from locpmap.formats.arrays import read_array, write_array
from locpmap.formats.atomic import PathLike, checked_path, checked_target, write_bytes
from locpmap.formats.images import read_image, read_label_map
from locpmap.formats.model_file import read_model, write_model
from locpmap.formats.names import read_names
from locpmap.formats.pairs import IMAGE_ENDINGS, NAMES_FILE, SCORE_ENDINGS, TRUTH_ENDING, find_pairs
from locpmap.formats.pictures import label_colours, label_outline
from locpmap.formats.readable import naming, size_of
from locpmap.formats.scores import read_scores
from locpmap.formats.uai import read_uai, write_uai

__all__ = [
    "IMAGE_ENDINGS",
    "NAMES_FILE",
    "SCORE_ENDINGS",
    "TRUTH_ENDING",
    "PathLike",
    "checked_path",
    "checked_target",
    "find_pairs",
    "label_colours",
    "label_outline",
    "naming",
    "read_array",
    "read_image",
    "read_label_map",
    "read_model",
    "read_names",
    "read_scores",
    "read_uai",
    "size_of",
    "write_array",
    "write_bytes",
    "write_model",
    "write_uai",
]
