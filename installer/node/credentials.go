package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
)

// Credentials is the directory of what the plugin asks the API server with:
// <conf-dir>/sidecar-cni.d. Only root can read it.
type Credentials struct {
	Dir string // names.CredentialsDir in the runtime's conf directory
}

// Write makes the directory if it is missing, keeps its files up to date, and returns the names of
// those that were not. The kubeconfig names token and authority by file: a rotation changes those
// alone. Nothing is replaced by nothing.
func (c Credentials) Write(token, ca []byte, server string) (changed []string, err error) {
	switch {
	case len(bytes.TrimSpace(token)) == 0:
		return nil, fmt.Errorf("write credentials to %s: the token is empty", c.Dir)
	case len(bytes.TrimSpace(ca)) == 0:
		return nil, fmt.Errorf("write credentials to %s: the API server's authority is empty",
			c.Dir)
	}
	if err := c.make(); err != nil {
		return nil, fmt.Errorf("write credentials to %s: %w", c.Dir, unnamed(err))
	}
	config, err := kubeconfig(server)
	if err != nil {
		return nil, fmt.Errorf("write credentials to %s: %w", c.Dir, err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{names.CA, ca}, {names.Token, token}, {names.Kubeconfig, config}} {
		did, err := WriteFile(filepath.Join(c.Dir, f.name), f.data, 0o600)
		if err != nil {
			return changed, err
		}
		if did {
			changed = append(changed, f.name)
		}
	}
	return changed, nil
}

// make makes the directory, and closes it to others.
func (c Credentials) make() error {
	info, err := os.Lstat(c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(c.Dir, 0o700); err != nil {
			return err
		}
		return syncDir(filepath.Dir(c.Dir))
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is not a directory: remove it")
	case info.Mode().Perm() != 0o700:
		return os.Chmod(c.Dir, 0o700)
	}
	return nil
}

// kubeconfig is for kubectl as well: with it an administrator sees what the plugin sees. It is
// JSON, which the plugin reads in less time than other YAML; what a comment would say is an
// extension.
func kubeconfig(server string) ([]byte, error) {
	const name, cluster = names.Plugin, "local"
	type object map[string]any
	data, err := json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"contexts": []object{{"name": name, "context": object{"cluster": cluster, "user": name}}},
		"clusters": []object{{"name": cluster,
			"cluster": object{"server": server, "certificate-authority": names.CA}}},
		"users": []object{{"name": name, "user": object{"tokenFile": names.Token}}},
		"extensions": []object{{"name": name, "extension": object{
			"note": "Written by sidecar-cni-installer, for the sidecar-cni plugin. Changes are " +
				"overwritten.",
		}}},
	}, "", "  ")
	return append(data, '\n'), err
}

// Remove removes the files, and the directory if nothing of anybody else is in it. It succeeds on
// nothing.
func (c Credentials) Remove() error {
	if err := Sweep(c.Dir); err != nil {
		return err
	}
	for _, name := range []string{names.Kubeconfig, names.Token, names.CA} {
		if err := os.Remove(filepath.Join(c.Dir, name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove credentials: %w", err)
		}
	}
	err := os.Remove(c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTEMPTY):
		return nil
	case err != nil:
		return fmt.Errorf("remove credentials: %w", err)
	}
	if err := syncDir(filepath.Dir(c.Dir)); err != nil {
		return fmt.Errorf("remove credentials in %s: %w", c.Dir, err)
	}
	return nil
}
