//go:build !linux

package kit

// CPUSeconds and peakRSS need Linux, on which the harness runs.
func CPUSeconds() float64 { return 0 }

func peakRSS() float64 { return 0 }
