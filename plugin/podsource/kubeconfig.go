package podsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A kubeconfig is the part of the file that says where the API server is and who asks. client-go's
// own loader takes twice the time, and offers what a program on the path of every pod start must
// not do, such as to run another.
type kubeconfig struct {
	CurrentContext string         `json:"current-context"`
	Contexts       []namedContext `json:"contexts"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type cluster struct {
	Server     string `json:"server"`
	ServerName string `json:"tls-server-name"`
	CA         string `json:"certificate-authority"`
	CAData     []byte `json:"certificate-authority-data"`

	Insecure bool   `json:"insecure-skip-tls-verify"`
	ProxyURL string `json:"proxy-url"`
}

type user struct {
	TokenFile string `json:"tokenFile"`
	Token     string `json:"token"`
	Cert      string `json:"client-certificate"`
	CertData  []byte `json:"client-certificate-data"`
	Key       string `json:"client-key"`
	KeyData   []byte `json:"client-key-data"`

	Username     string `json:"username"`
	As           string `json:"as"`
	Exec         any    `json:"exec"`
	AuthProvider any    `json:"auth-provider"`
}

func parseKubeconfig(data []byte) (cluster, user, error) {
	config, err := decodeKubeconfig(data)
	if err != nil {
		return cluster{}, user{}, errors.New(brief(err.Error()))
	}
	c, u, err := config.current()
	if err != nil {
		return cluster{}, user{}, err
	}
	if wrong := append(c.mistakes(), u.mistakes()...); len(wrong) > 0 {
		return cluster{}, user{}, errors.New(strings.Join(wrong, ", "))
	}
	return c, u, nil
}

// decodeKubeconfig reads JSON, which the installer writes, in half the time that it takes to read
// YAML, which anybody may have written. Of that the parser bounds what aliases and depth can cost,
// and its errors quote nothing of the file.
func decodeKubeconfig(data []byte) (config kubeconfig, err error) {
	if json.Unmarshal(data, &config) == nil {
		return config, nil
	}
	config = kubeconfig{}
	return config, yaml.Unmarshal(data, &config)
}

// current returns what current-context names.
func (k *kubeconfig) current() (cluster, user, error) {
	i := slices.IndexFunc(k.Contexts,
		func(c namedContext) bool { return c.Name == k.CurrentContext })
	if i < 0 {
		return cluster{}, user{},
			fmt.Errorf("current-context %q: there is no such context", brief(k.CurrentContext))
	}
	context := k.Contexts[i].Context
	i = slices.IndexFunc(k.Clusters, func(c namedCluster) bool { return c.Name == context.Cluster })
	j := slices.IndexFunc(k.Users, func(u namedUser) bool { return u.Name == context.User })
	if i < 0 || j < 0 {
		return cluster{}, user{},
			fmt.Errorf("context %q: want its cluster %q and its user %q in the file",
				brief(k.CurrentContext), brief(context.Cluster), brief(context.User))
	}
	return k.Clusters[i].Cluster, k.Users[j].User, nil
}

// mistakes lists what cannot be used, and what shall not: whoever gets the token must first have
// shown who they are.
func (c cluster) mistakes() []string {
	var wrong []string
	if u, err := url.Parse(c.Server); err != nil || u.Scheme != "https" || u.Host == "" {
		wrong = append(wrong, fmt.Sprintf("server %q: want https://host:port", brief(c.Server)))
	}
	if c.Insecure {
		wrong = append(wrong, "insecure-skip-tls-verify: want certificate-authority")
	}
	if c.ProxyURL != "" {
		wrong = append(wrong, "proxy-url: not supported")
	}
	return wrong
}

func (u user) mistakes() []string {
	var wrong []string
	for key, set := range map[string]bool{
		"username": u.Username != "", "as": u.As != "", "exec": u.Exec != nil,
		"auth-provider": u.AuthProvider != nil,
	} {
		if set {
			wrong = append(wrong, key+": not supported")
		}
	}
	slices.Sort(wrong)
	if u.TokenFile == "" && u.Token == "" && u.Cert == "" && u.CertData == nil {
		wrong = append(wrong, "want tokenFile, token or client-certificate")
	}
	return wrong
}

// unnamed drops the file's name from an error, where the text has it already.
func unnamed(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
