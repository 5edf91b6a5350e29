package backend

// MarkerKey is set in the environment of every process of a box in folder
// mode, so that those that have left their process group are found.
const MarkerKey = "SANDBOX_BOX_ID"
