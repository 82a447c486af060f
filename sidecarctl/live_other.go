//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/sidecar-cni/sidecar-cni/redirect/trace"
)

var errNotLinux = errors.New("this asks a kernel: run it on a Linux node")

func (s subject) live(context.Context, talkFlags, namedTalk, trace.Leg) (talk, error) {
	return talk{}, errNotLinux
}

func (s subject) wait(context.Context, talkFlags, namedTalk, func(talk) error) error {
	return errNotLinux
}
