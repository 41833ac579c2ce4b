package cause

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// volume is what the files of a pod lie on that requests wait for.
type volume struct {
	at    inPod // whose it is
	mount *observe.WaitMount
	said  *observe.PodVolume // by the manifest; nil where nobody told, or it has no such volume
	// plugin and name are by the kubelet's directory: "csi" and the PersistentVolume, "empty-dir"
	// and the volume of the pod.
	plugin, name string
}

// volumeOf is the volume of a pod that a thread waits for; nil when it is in none.
func (v *View) volumeOf(h *observe.WaitHop) *volume {
	if h.Mount == nil {
		return nil
	}
	uid, plugin, name := observe.KubeletVolume(h.Mount.Kubelet)
	if uid == "" { // who sees the mounts of the node
		uid, plugin, name = observe.KubeletVolume(h.Mount.Dir)
	}
	x := &volume{at: v.podOfProcess(h.Process.PID), mount: h.Mount, plugin: plugin, name: name}
	if x.at.pod == nil {
		x.at = v.podOf(h.Process.Container, "")
	}
	if x.find(h) {
		return x
	}
	if p := v.pods().byUID[uid]; p != nil && p != x.at.pod { // an agent of the node, in another's volume
		x.at = inPod{pod: p, node: &v.Kubernetes.Node}
		x.find(h)
		return x
	}
	if x.at.pod == nil && x.name == "" {
		return nil
	}
	return x
}

// find looks for it among the volumes that the manifest of the pod names.
func (x *volume) find(h *observe.WaitHop) bool {
	if x.at.pod == nil {
		return false
	}
	for i := range x.at.pod.Volumes {
		o := &x.at.pod.Volumes[i]
		if x.at.container != nil && o.Container != x.at.container.Name {
			continue
		}
		mounted := x.at.container != nil && path.Clean(o.Path) == x.mount.Dir && !o.Block
		device := o.Block && strings.HasPrefix(objectOf(h)+" ", o.Path+" ")
		if mounted || device || x.name != "" && (o.Volume == x.name || o.Name == x.name) {
			x.said = o
			return true
		}
	}
	return false
}

// claim is the PersistentVolumeClaim; empty where it has none, or that is not known.
func (x *volume) claim() string {
	if x.said == nil {
		return ""
	}
	return x.said.Claim
}

// persistent is the PersistentVolume; empty where it has none, or that is not known.
func (x *volume) persistent() string {
	switch {
	case x.said != nil && x.said.Volume != "":
		return x.said.Volume
	case x.plugin == "" || x.plugin == "empty-dir" || x.said != nil && x.claim() == "":
		return ""
	}
	return x.name
}

// inLayer says that the files are in no volume, but where the image is unpacked.
func (x *volume) inLayer() bool {
	return x.said == nil && x.name == "" && x.mount.Type == "overlay" && x.mount.Dir == "/"
}

// text is what Kubernetes calls it.
func (x *volume) text() string {
	switch {
	case x.claim() != "":
		return "PersistentVolumeClaim " + x.claim()
	case x.said != nil:
		return x.said.Kind + " " + x.said.Name
	case x.plugin == "empty-dir":
		return "emptyDir " + x.name
	case x.name != "":
		return "PersistentVolume " + x.name
	case x.inLayer():
		return "none: the container's own layer"
	}
	return ""
}

// field is where the manifest that a person edits says what it is.
func (x *volume) field() string {
	switch p := x.at.pod; {
	case p == nil || x.said == nil:
		return ""
	case x.said.Kind == "persistentVolumeClaim" && p.Kind == "StatefulSet" && x.said.Claim == x.said.Name+"-"+p.Name:
		return "spec.volumeClaimTemplates[metadata.name=" + x.said.Name + "].spec.storageClassName"
	case x.said.Kind == "ephemeral":
		return x.at.spec() + ".volumes[name=" + x.said.Name + "].ephemeral.volumeClaimTemplate.spec.storageClassName"
	case x.said.Kind == "persistentVolumeClaim":
		return x.at.spec() + ".volumes[name=" + x.said.Name + "].persistentVolumeClaim.claimName"
	}
	return x.at.spec() + ".volumes[name=" + x.said.Name + "]." + x.said.Kind
}

func (x *volume) evidence() []Evidence {
	value := x.text()
	if x.said != nil && x.said.Class != "" {
		value += ", StorageClass " + x.said.Class
	}
	if pv := x.persistent(); pv != "" && !strings.HasSuffix(value, " "+pv) {
		value += ", PersistentVolume " + pv
	}
	fact, source := "volume of "+x.at.text(), "/proc/PID/mountinfo"
	if x.at.pod == nil {
		fact = "volume"
	}
	if f := x.field(); f != "" {
		source = f
	}
	return []Evidence{{Fact: fact, Value: value, Source: source},
		{Fact: "it is mounted at " + x.mount.Dir, Value: x.mount.Type + " on " + x.mount.Source, Source: "/proc/PID/mountinfo"}}
}

// isDisk says that a file system lies on a disk of this host, and not on a server.
func isDisk(store string) bool {
	major, minor, ok := strings.Cut(store, ":")
	_, ok1 := smallNumber(major)
	_, ok2 := smallNumber(minor)
	return store == "" || ok && ok1 && ok2
}

// advice is how requests wait less for it, and what shows more of it.
func (x *volume) advice() (text string, commands []shell.Command) {
	what := x.text()
	if f := x.field(); f != "" {
		what += " (" + f + ")"
	}
	switch {
	case x.mount.Type == "fuse" || strings.HasPrefix(x.mount.Type, "fuse."):
		text = fmt.Sprintf("The files are on %s, a file system in user space.", what)
	case !isDisk(x.mount.Store):
		text = fmt.Sprintf("The files are on %s, which %s serves: look there, and at the network to it. Keep scratch files in an emptyDir, and what requests wait for on a block volume (another spec.storageClassName).", what, x.mount.Store)
	case x.inLayer():
		text = "The files are in the container's own layer, on the node's disk next to images and logs: mount a volume for them, an emptyDir for scratch files, else a PersistentVolumeClaim."
	case x.said != nil && x.said.Kind == "emptyDir", x.said == nil && x.plugin == "empty-dir":
		text = fmt.Sprintf("The files are on %s, on the node's disk next to images and logs. Keep them in memory if they are few (emptyDir.medium: Memory, which counts toward resources.limits.memory), or on a volume of their own (volumes[].ephemeral).", what)
	case x.said != nil && x.said.Kind == "hostPath":
		text = fmt.Sprintf("The files are on %s, on the node's own disk: use a PersistentVolumeClaim with a StorageClass on other disks.", what)
	default:
		text = fmt.Sprintf("The files are on %s. Have it give more IOPS or throughput (spec.volumeAttributesClassName of the claim, where its CSI driver can; else a new claim with another spec.storageClassName), or use a local volume. Keep scratch files in an emptyDir.", what)
	}
	if c := x.claim(); c != "" {
		commands = append(commands, shell.Line("kubectl -n %s describe pvc %s", shell.Word(x.at.pod.Namespace), shell.Operand(c)))
	}
	switch pv := x.persistent(); {
	case pv != "":
		commands = append(commands, shell.Line("kubectl describe pv %s", shell.Operand(pv)))
	case x.claim() == "" && x.at.pod != nil:
		commands = append(commands, shell.Line("kubectl -n %s describe pod %s", shell.Word(x.at.pod.Namespace), shell.Operand(x.at.pod.Name)))
	}
	return text, commands
}

// storedOn is the hop of a root that waits for a file of which the mount is known; nil when
// none does.
func (r *root) storedOn() *observe.WaitHop {
	for _, h := range []*observe.WaitHop{r.blamed(), r.last()} {
		if h.Mount != nil {
			return h
		}
	}
	return nil
}

// store is what the files lie on that are waited for, as observe.WaitMount.Store.
func (r *root) store() string {
	if h := r.storedOn(); h != nil {
		return h.Mount.Store
	}
	return ""
}

// aboutVolume puts the volume that requests wait for into a finding, and who else uses its
// disk or server.
func (v *View) aboutVolume(r *root, f *Finding) {
	h := r.storedOn()
	if h == nil {
		return
	}
	victims := map[*observe.Pod]bool{v.podOfProcess(h.Process.PID).pod: true}
	for _, s := range r.shares {
		for i := range s.Chain.Hops {
			victims[v.podOfProcess(s.Chain.Hops[i].Process.PID).pod] = true
		}
	}
	v.noisyPod(h.Mount.Store, victims, f)
	if x := v.volumeOf(h); x != nil && x.text() != "" {
		f.Evidence = slices.DeleteFunc(f.Evidence, func(e Evidence) bool { return x.claim() != "" && e.Value == x.claim() })
		f.Evidence = append(f.Evidence, x.evidence()...)
		text, commands := x.advice()
		f.Fix.Text = strings.TrimSpace(f.Fix.Text + " " + text)
		f.Fix.Commands = append(commands, f.Fix.Commands...)
	}
}
