"""The types of the arrays that kernels read and write."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
IndexArray = npt.NDArray[np.intp]
"""Places in arrays, in the type that numpy indexes with fastest."""
FloatArray = npt.NDArray[np.float32]
