package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

// completion has kubectl complete the plugin's words: kubectl looks for a program of that name.
//
//go:embed kubectl_complete-sidecar_cni
var completion []byte

// member is a file of an archive.
type member struct {
	name    string
	mode    int64
	content []byte
}

// archive packs the program and what goes with it. All are plain files: krew unpacks no links.
func (r *release) archive(p platform, program []byte) (name string, content []byte, err error) {
	name = "sidecarctl_" + r.version + "_" + p.String()
	files := []member{{"LICENSE", 0o644, r.license}, {p.binary(), 0o755, program}}
	if p.os == "windows" {
		content, err = r.zip(files)
		return name + ".zip", content, err
	}
	files = append(files, member{"kubectl_complete-sidecar_cni", 0o755, completion})
	content, err = r.tar(files)
	return name + ".tar.gz", content, err
}

func (r *release) tar(files []member) ([]byte, error) {
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode,
			Size: int64(len(f.content)), ModTime: r.time, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	err := compressed.Close()
	return b.Bytes(), err
}

func (r *release) zip(files []member) ([]byte, error) {
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	for _, f := range files {
		one, err := archive.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate,
			Modified: r.time})
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(one, bytes.NewReader(f.content)); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return b.Bytes(), err
}
