// Package image is what a machine boots: platform images, as a manifest that
// names content by digest, the store of that content on disk, and the builder
// of a Linux image from a distribution's packages.
//
// It never serves anything, and it never trusts a name: content is known by
// its SHA-256 alone, and is checked before it is kept.
package image

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"muster.internal"
	"muster.internal/boot"
)

// Roles that a file may have in an image of each kind; the ones without which
// nothing boots come first.
var roles = map[muster.ImageKind]struct{ needed, optional []string }{
	muster.LinuxImage:   {needed: []string{"kernel", "initrd"}, optional: []string{"rootfs"}},
	muster.SmartOSImage: {needed: []string{"unix", "boot_archive"}, optional: []string{"hash"}},
}

// Arches are the architectures that a variant may be for, as Go spells them.
var Arches = []string{"amd64", "arm64"}

// Canonical is the one spelling of a manifest that its digest covers: JSON
// with variants ordered by architecture and files by role, without the digest
// itself and without what a server adds.
func Canonical(i muster.Image) []byte {
	i.Digest, i.AddedAt = "", nil
	i.Variants = slices.Clone(i.Variants)
	for k, v := range i.Variants {
		v.Files = slices.Clone(v.Files)
		slices.SortStableFunc(v.Files, func(a, b muster.ImageFile) int { return cmp.Compare(a.Role, b.Role) })
		i.Variants[k] = v
	}
	slices.SortStableFunc(i.Variants, func(a, b muster.ImageVariant) int { return cmp.Compare(a.Arch, b.Arch) })
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(i); err != nil {
		panic(err) // strings and numbers only: cannot fail
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Digest names a manifest: "sha256:" and the hash of its canonical JSON.
func Digest(i muster.Image) string { return DigestOf(Canonical(i)) }

// DigestOf names content.
func DigestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ValidDigest tells whether s is "sha256:" and 64 lower-case hex digits, which
// also makes it safe as a file name.
func ValidDigest(s string) bool {
	h, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(h) == 64 && strings.Trim(h, "0123456789abcdef") == ""
}

// Verify checks a manifest's shape, and its digest when it carries one. The
// error is a problem that names the field.
func Verify(i muster.Image) error {
	if !muster.ValidStamp(i.Name) {
		return muster.Invalid("name", "%q is not an image name: letters, digits, dots, hyphens and underscores, at most 64", i.Name)
	}
	role, known := roles[i.Kind]
	if !known {
		return muster.Invalid("kind", "%q is not one of linux, smartos", i.Kind)
	}
	if len(i.Variants) == 0 {
		return muster.Invalid("variants", "an image needs a variant for at least one architecture")
	}
	if len(i.Comment) > 1024 {
		return muster.Invalid("comment", "is longer than 1024 bytes")
	}
	seen := map[string]bool{}
	for n, v := range i.Variants {
		field := fmt.Sprintf("variants[%d]", n)
		if !slices.Contains(Arches, v.Arch) || seen[v.Arch] {
			return muster.Invalid(field+".arch", "%q must be one of %s, each at most once", v.Arch, strings.Join(Arches, ", "))
		}
		seen[v.Arch] = true
		if err := verifyVariant(field, v, role.needed, role.optional); err != nil {
			return err
		}
	}
	if i.Digest != "" && i.Digest != Digest(i) {
		return muster.Invalid("digest", "the manifest says %s, but its content is %s", i.Digest, Digest(i))
	}
	return nil
}

func verifyVariant(field string, v muster.ImageVariant, needed, optional []string) error {
	have := map[string]bool{}
	for n, f := range v.Files {
		at := fmt.Sprintf("%s.files[%d]", field, n)
		switch {
		case !slices.Contains(needed, f.Role) && !slices.Contains(optional, f.Role) || have[f.Role]:
			return muster.Invalid(at+".role", "%q must be one of %s, each at most once", f.Role, strings.Join(slices.Concat(needed, optional), ", "))
		case !ValidDigest(f.Digest):
			return muster.Invalid(at+".digest", "%q is not sha256: and 64 hex digits", f.Digest)
		case f.Size <= 0:
			return muster.Invalid(at+".size", "must be the size in bytes, above 0")
		}
		have[f.Role] = true
	}
	for _, r := range needed {
		if !have[r] {
			return muster.Invalid(field+".files", "the %s is missing", r)
		}
	}
	for n, a := range v.Args {
		if !muster.ValidArg(a) {
			return muster.Invalid(fmt.Sprintf("%s.args[%d]", field, n), "%q is not a kernel argument that a boot script can carry", a)
		}
		if boot.HarmsPools(a) {
			return muster.Invalid(fmt.Sprintf("%s.args[%d]", field, n), "%q would make the platform destroy or import pools", a)
		}
	}
	return nil
}

// Files lists each content of an image once, for those who fetch or collect.
func Files(i muster.Image) []muster.ImageFile {
	var fs []muster.ImageFile
	seen := map[string]bool{}
	for _, v := range i.Variants {
		for _, f := range v.Files {
			if !seen[f.Digest] {
				seen[f.Digest] = true
				fs = append(fs, f)
			}
		}
	}
	return fs
}
