package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/resource"
)

const (
	// bundleDir is where a package puts what a machine carries to raise a control
	// plane without any network: declarations, and the files that they name.
	bundleDir = "/usr/share/muster-host/bundle"
	// bundleUsual is the one that is taken unless another is named.
	bundleUsual = "embedded"
	// bundleRecord, in the state directory, is the file of the bundle that was
	// begun: another one would make another control plane of a half-made one.
	bundleRecord = "bundle"
)

// bundle is the file of the bundle to raise a control plane from; none on a
// machine that has one.
func (s *store) bundle(name string, dryRun bool) (string, error) {
	if _, err := os.Lstat(credentialFile(s.path)); err == nil {
		if name != "" {
			return "", errors.New("this machine is a node already, and a bundle is for a machine that belongs to no control plane; `muster-host apply FILE` applies a file")
		}
		return "", nil
	}
	begun := ""
	if err := s.dir.Load(bundleRecord, &begun); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	file, err := bundleFile(name, begun)
	if err != nil {
		return "", err
	}
	if begun != "" && begun != file {
		return "", fmt.Errorf("a control plane is being raised here from %s already, so not from %s; go on with muster-host reconcile", begun, file)
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no control plane has told this machine what to be, and it carries no bundle %s to raise one from (%s). `muster-host enrol` makes it a node, `muster-host apply FILE` applies a file", file, carried(filepath.Dir(file)))
	}
	if begun == file || dryRun {
		return file, nil
	}
	return file, s.dir.Save(bundleRecord, file)
}

// carried says which bundles are in a directory.
func carried(dir string) string {
	var names []string
	files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
	if names == nil {
		return "package muster-bundle"
	}
	return "it has " + strings.Join(names, ", ")
}

func bundleFile(name, begun string) (string, error) {
	switch {
	case name == "" && begun != "":
		return begun, nil
	case name == "":
		name = bundleUsual
	case strings.ContainsRune(name, filepath.Separator):
		return filepath.Abs(name)
	}
	return filepath.Join(bundleDir, name+".yaml"), nil
}

// raise makes the machine as a bundle says. That is what a person could do with
// the same file and apply: what it made stays once the machine is a node.
func (e *env) raise(dir, file string, dryRun bool) error {
	d, err := e.declaration(file)
	if err != nil {
		return err
	}
	w := host.Work{Declaration: &d, Trigger: "bundle", Version: muster.Build, Local: true, DryRun: dryRun}
	if !dryRun {
		fmt.Fprintf(e.err, "muster-host: raising a control plane from %s\n", file)
		w.Begin = func(i int, ref resource.Ref) {
			fmt.Fprintf(e.err, "muster-host: %d of %d: %s\n", i+1, len(d.Resources), ref)
		}
	}
	if err := e.applied(dir, w); err != nil || dryRun {
		return err
	}
	where := ""
	if at := e.names(dir, &d)["address"]; at != "" && d.Find(resource.NewRef(resource.KindService, "musterd.service")) != nil {
		where = ", at https://" + net.JoinHostPort(at, "8443") + " unless /etc/muster/musterd.env says otherwise"
	}
	fmt.Fprintf(e.err, "muster-host: the control plane is up%s. This machine joins it like any other:\n"+
		"  muster token issue | muster-host enrol --token -\n", where)
	return nil
}
