package podsource

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// An access is a way to the API server: where it is, how to know it, and what to show it.
type access struct {
	server     string
	tls        *tls.Config
	ca         string // where tls.RootCAs is from
	credential credential
}

// loadAccess reads the kubeconfig and all that its current context names.
func loadAccess(path string) (access, error) {
	a, err := readAccess(path)
	if err != nil {
		return access{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return a, nil
}

func readAccess(path string) (access, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return access{}, unnamed(err)
	}
	cluster, user, err := parseKubeconfig(data)
	if err != nil {
		return access{}, err
	}
	a := access{
		server:     cluster.Server,
		tls:        &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.ServerName},
		credential: credential{kubeconfig: path},
	}
	folder := filepath.Dir(path)
	if err := a.trust(cluster, folder); err != nil {
		return access{}, err
	}
	if err := a.showToken(user, folder); err != nil {
		return access{}, err
	}
	return a, a.showCertificate(user, folder)
}

// trust sets the CAs that the server is known by.
func (a *access) trust(c cluster, folder string) error {
	pem, where, err := read("certificate-authority", c.CAData, inFolder(folder, c.CA))
	if err != nil {
		return err
	}
	a.ca, a.tls.RootCAs = where, x509.NewCertPool()
	if !a.tls.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: there is no certificate in it", where)
	}
	return nil
}

// showToken sets the token. A file goes before a token in the kubeconfig, as it does for client-go.
func (a *access) showToken(u user, folder string) error {
	if u.TokenFile == "" && u.Token == "" {
		return nil
	}
	inline := []byte(u.Token)
	if u.TokenFile != "" {
		inline = nil
	}
	data, where, err := read("token", inline, inFolder(folder, u.TokenFile))
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token,
		func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s: there is no token in it", where)
	}
	a.credential.token, a.credential.where = token, where
	return nil
}

func (a *access) showCertificate(u user, folder string) error {
	if u.Cert == "" && u.CertData == nil {
		return nil
	}
	cert, where, err := read("client-certificate", u.CertData, inFolder(folder, u.Cert))
	if err != nil {
		return err
	}
	key, keyWhere, err := read("client-key", u.KeyData, inFolder(folder, u.Key))
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", where, keyWhere, err)
	}
	a.tls.Certificates = []tls.Certificate{pair}
	if a.credential.where == "" {
		a.credential.certificate, a.credential.where = pair.Leaf, where
	}
	return nil
}

// read returns what a kubeconfig holds itself, else what is in the file that it names, and where
// that was.
func read(key string, inline []byte, file string) (data []byte, where string, err error) {
	switch {
	case len(inline) > 0:
		return inline, key + " in the kubeconfig", nil
	case file == "":
		return nil, "", fmt.Errorf("%s: want it in the kubeconfig", key)
	}
	where = key + " " + file
	if data, err = os.ReadFile(file); err != nil {
		return nil, "", fmt.Errorf("%s: %w", where, unnamed(err))
	}
	return data, where, nil
}

// inFolder completes a relative path, as kubeconfigs mean it.
func inFolder(folder, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(folder, file)
}
