package lab

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"muster.internal/boot"
	"muster.internal/image"

	muster "muster.internal"
)

// devImage is the platform image of simulated machines: it has a name, digests
// and a size like any other, and boots nothing real.
const devImage = "simulated-1"

// placeholder stands in for iPXE where the package with its files is not
// installed: simulated firmware runs it, a real one would not.
const placeholder = "muster: a placeholder for iPXE, for simulated firmware only\n"

// debianIPXE is where Debian's package ipxe has its files.
const debianIPXE = "/usr/lib/ipxe"

// addDevImage puts the image in place, once, and returns its reference.
func addDevImage(ctx context.Context, f muster.Fleet) (*muster.ImageRef, error) {
	if i, err := f.Image(ctx, devImage); err == nil {
		return &muster.ImageRef{Name: i.Name, Digest: i.Digest}, nil
	} else if !muster.IsCode(err, muster.CodeNotFound) {
		return nil, err
	}
	i := muster.Image{Name: devImage, Kind: muster.LinuxImage, Comment: "for simulated machines: boots nothing real",
		Variants: []muster.ImageVariant{{Arch: "amd64", Args: []string{"quiet"}}}}
	for _, role := range []string{"kernel", "initrd"} {
		content := bytes.Repeat([]byte("this "+role+" is for simulated machines\n"), 4096)
		file := muster.ImageFile{Role: role, Digest: image.DigestOf(content), Size: int64(len(content))}
		if err := f.PutBlob(ctx, file.Digest, file.Size, bytes.NewReader(content)); err != nil {
			return nil, fmt.Errorf("the %s of image %s: %w", role, devImage, err)
		}
		i.Variants[0].Files = append(i.Variants[0].Files, file)
	}
	i, err := f.AddImage(ctx, i)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", devImage, err)
	}
	return &muster.ImageRef{Name: i.Name, Digest: i.Digest}, nil
}

// loaderDir is a directory with loaders for PCs: Debian's, or one below dir with
// placeholders.
func loaderDir(dir string) (string, error) {
	whole := true
	for _, name := range []string{"undionly.kpxe", "snponly.efi"} {
		if _, err := os.Stat(filepath.Join(debianIPXE, name)); err != nil {
			whole = false
		}
	}
	if whole {
		return debianIPXE, nil
	}
	dir = filepath.Join(dir, "ipxe")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range boot.Loaders() {
		err := os.WriteFile(filepath.Join(dir, name), []byte(placeholder), 0o644)
		if err != nil && !os.IsExist(err) {
			return "", err
		}
	}
	return dir, nil
}

// keepSecret returns what a file holds, or makes it and writes it for its
// owner alone.
func keepSecret(file string, make func() (string, error)) (string, error) {
	b, err := os.ReadFile(file)
	if err == nil {
		return string(bytes.TrimSpace(b)), nil
	}
	if !os.IsNotExist(err) {
		return "", err
	}
	s, err := make()
	if err != nil {
		return "", err
	}
	return s, writeSecret(file, s+"\n")
}

func writeSecret(file, content string) error {
	tmp := file + ".new"
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(0o600))
	if err != nil {
		return err
	}
	if _, err := f.WriteString(content); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
