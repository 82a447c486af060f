//go:build !linux

package main

import "errors"

// here says why this machine's kernel cannot be asked.
func here() error {
	return errors.New("only on a Linux node: run it there, or name a pod of a cluster")
}
