"""Problems to try the library on: generators, and loaders of the formats real data comes in."""

from __future__ import annotations

from kernelbp.datasets.citations import (
    CitationNetwork,
    citation_network,
    load_citations_mat,
    load_citations_text,
)
from kernelbp.datasets.depth_features import DEPTH_FEATURES, depth_features
from kernelbp.datasets.depths import DepthScene, load_7scenes, load_make3d, load_middlebury, stereo_scene
from kernelbp.datasets.generated_proteins import SwitchingProcess, protein_chains
from kernelbp.datasets.grids import grid_pairs
from kernelbp.datasets.proteins import (
    AMINO_ACIDS,
    Backbone,
    Profile,
    Protein,
    backbone_angles,
    backbone_directions,
    load_mmcif,
    load_pdb,
    load_proteins,
    load_psiblast,
)
from kernelbp.datasets.sunsets import SUNSET_COLORS, load_sunset, sunset

__all__ = [
    "AMINO_ACIDS",
    "DEPTH_FEATURES",
    "SUNSET_COLORS",
    "Backbone",
    "CitationNetwork",
    "DepthScene",
    "Profile",
    "Protein",
    "SwitchingProcess",
    "backbone_angles",
    "backbone_directions",
    "citation_network",
    "depth_features",
    "grid_pairs",
    "load_7scenes",
    "load_citations_mat",
    "load_citations_text",
    "load_make3d",
    "load_middlebury",
    "load_mmcif",
    "load_pdb",
    "load_proteins",
    "load_psiblast",
    "load_sunset",
    "protein_chains",
    "stereo_scene",
    "sunset",
]
