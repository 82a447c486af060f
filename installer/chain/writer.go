package chain

import "bytes"

// Writer is somebody else who is known to write a network's file again and again.
type Writer struct {
	Name   string // a word of its configuration
	Remedy string // what is known to help against it, for an administrator
}

var writers = []Writer{
	{"cilium", "set cni.exclusive=false in Cilium's configuration"},
	{"aws-cni", "let the AWS VPC CNI's node agent end its updates, or set --way owned"},
	{"azure-vnet", "set --way owned: Azure CNI writes its file anew"},
}

// WriterOf returns who writes a file, by a word in it, if that is known.
func WriterOf(file []byte) (Writer, bool) {
	for _, w := range writers {
		if bytes.Contains(file, []byte(w.Name)) {
			return w, true
		}
	}
	return Writer{}, false
}
