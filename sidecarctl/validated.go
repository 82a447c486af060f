package main

import (
	"github.com/spf13/pflag"

	"github.com/sidecar-cni/sidecar-cni/injector/inject/validation"
)

// validated is the flag about the init container that holds up a pod which is not redirected.
type validated struct{ image string }

func (v *validated) addTo(f *pflag.FlagSet) {
	f.StringVar(&v.image, "validationImage", "", "image of sidecar-cni for an init container "+
		"that lets nothing of a pod start where nothing redirects it; default: no such container")
}

// container is what is put into pods; nil: nothing.
func (v *validated) container() *validation.Container {
	if v.image == "" {
		return nil
	}
	return &validation.Container{Image: v.image}
}
