package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Route holds the settings of a path of the service.
type Route struct {
	// Path is an exact path, or a prefix if it ends with a slash. The longest path that matches a
	// request counts.
	Path string `yaml:"path"`
	// Plain passes everything untouched, for streams and uploads.
	Plain bool `yaml:"plain"`
	// The other fields are those of httpadapter.Config.
	Methods       []string      `yaml:"methods"`
	Optional      *bool         `yaml:"optional"` // nil: as the flag says
	Keep          string        `yaml:"keep"`
	Timeout       time.Duration `yaml:"timeout"`
	RequestLimit  int           `yaml:"request-limit"`
	ResponseLimit int           `yaml:"response-limit"`
	Headers       []string      `yaml:"headers"`
	MaxInFlight   int           `yaml:"max-in-flight"`
	// Irreversible makes a key uncertain when the service got the request and its outcome is
	// unknown. Otherwise the retry runs.
	Irreversible bool `yaml:"irreversible"`
}

// Hook is a path that receives the webhooks of a provider.
type Hook struct {
	// Path receives the events. To is the path at the service. Default: the same path.
	Path string `yaml:"path"`
	To   string `yaml:"to"`
	// Provider is the preset. Endpoint names the receiver of the events and is part of every key.
	Provider string   `yaml:"provider"`
	Endpoint string   `yaml:"endpoint"`
	Secrets  []Secret `yaml:"secrets"`
	// URL is the public URL, for twilio and square; WebhookIDs are for paypal.
	URL        string   `yaml:"url"`
	WebhookIDs []string `yaml:"webhook-ids"`
	// Events are the types that the service handles; default: all.
	Events     []string      `yaml:"events"`
	Window     time.Duration `yaml:"window"`
	Timeout    time.Duration `yaml:"timeout"`
	Relabelled bool          `yaml:"relabelled"`
}

// Secret names the place of a secret: an environment variable or a file. The secret itself is never
// in the settings.
type Secret struct {
	Env  string `yaml:"env"`
	File string `yaml:"file"`
}

// read returns the secret. Its errors name the place, and show nothing of the secret.
func (s Secret) read() (string, error) {
	switch {
	case (s.Env == "") == (s.File == ""):
		return "", errors.New("a secret has one of env and file")
	case s.Env != "":
		if text := os.Getenv(s.Env); text != "" {
			return text, nil
		}
		return "", fmt.Errorf("the environment has no %s", s.Env)
	}
	data, err := os.ReadFile(s.File)
	text := strings.TrimRight(string(data), "\r\n")
	if err == nil && text == "" {
		err = fmt.Errorf("%s is empty", s.File)
	}
	return text, err
}

// readFile applies the file of --config, except where a flag was given.
func (o *Options) readFile() error {
	if o.Config == "" {
		return nil
	}
	data, err := os.ReadFile(o.Config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var file struct {
		Routes   []Route           `yaml:"routes"`
		Webhooks []Hook            `yaml:"webhooks"`
		Settings map[string]string `yaml:",inline"`
	}
	if err := decode(data, &file); err != nil {
		return fmt.Errorf("--config: %s: %w", o.Config, err)
	}
	o.Routes, o.Webhooks = file.Routes, file.Webhooks
	var all []error
	for _, name := range slices.Sorted(maps.Keys(file.Settings)) {
		switch {
		case o.given.Lookup(name) == nil || name == "config" || name == "check":
			all = append(all, fmt.Errorf("--config: %s: %q is not a setting", o.Config, name))
		case !o.given.Given(name):
			if err := o.given.Set(name, file.Settings[name]); err != nil {
				all = append(all, fmt.Errorf("--config: %s: %s: %w", o.Config, name, err))
			}
		}
	}
	return errors.Join(all...)
}

// decode reads YAML or JSON. It compacts JSON first, because a YAML parser refuses tabs. An unknown
// name is an error.
func decode(data []byte, into any) error {
	var compact bytes.Buffer
	if json.Compact(&compact, data) == nil {
		data = compact.Bytes()
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	err := d.Decode(into)
	if errors.Is(err, io.EOF) { // an empty file
		return nil
	}
	return err
}
