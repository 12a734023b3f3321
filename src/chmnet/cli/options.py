"""Options that several commands share: one meaning, one help text."""

from typing import Annotated

import typer

ModelName = Annotated[str, typer.Option(help="Name from `chmnet models`, or a model file. Default: chmnet-lite.")]
BackboneWeights = Annotated[
    str, typer.Option(help="Backbone weights for a model without them: a file, or `published`.")
]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, mps.")]
