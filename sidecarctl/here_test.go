package main

import (
	"runtime"
	"testing"
)

func TestOnlyLinuxIsAskedHere(t *testing.T) {
	t.Parallel()
	if err := here(); (err == nil) != (runtime.GOOS == "linux") {
		t.Errorf("on %s: %v", runtime.GOOS, err)
	}
}
