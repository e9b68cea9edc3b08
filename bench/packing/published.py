"""Figures that the document's authors have published, to be shown next to ours.

Owns: these figures and their source. Must never: hold a figure that this project has measured.

The figures are means over the 501 measurements of the authors' streams with 200 partitions. We computed them from the
columns ``Rscore_Algorithm_Capacity`` and ``Number of Consumers`` of their files, with equations 28 and 29.
"""

from __future__ import annotations

from typing import Final

SOURCE: Final = "https://github.com/landaudiogo/thesis_data, commit fb1dac2, Reassign Algorithm/uniform_start.csv"
STARTS_SOURCE: Final = "the same folder, speed_0.csv, speed_50.csv and speed_100.csv"

#: By delta: the mean excess of bins (CBS).
MWF_CBS: Final = {5.0: 0.1181, 25.0: 0.0881}
MWFP_CBS: Final = {5.0: 0.1233, 25.0: 0.0846}
FF_CBS: Final = {5.0: 0.0811, 25.0: 0.0624}

#: By delta: the mean Rscore of MWF divided by the mean Rscore of NFD, minus 1.
MWF_TO_NFD: Final = {5.0: -0.552, 25.0: -0.240}

#: By first sizes (``streams.Start``): the CBS and the mean Rscore of MWF at delta 5.
MWF_STARTS: Final = {"random": (0.1181, 9.20), "0": (0.0773, 8.39), "half C": (0.1381, 11.03), "C": (0.0512, 6.17)}
