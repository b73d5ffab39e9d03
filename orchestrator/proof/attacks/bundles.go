package attacks

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// sendBundle sends a bundle of one piece and names it whole.
func (h *Attacker) sendBundle(held picket.LeaseCredential, b kit.Bundle) error {
	if _, err := h.RunBundlePiece(h.Ctx, held, b.Piece(0)); err != nil {
		return err
	}
	return h.RunBundle(h.Ctx, held, b.About())
}

// bundles is a run that stores one bundle after the other, and one that is too large.
func bundles(h *Attacker) {
	held := h.Start()
	h.wantQuotaRefusal(h.sendBundle(held, kit.BundleOf(SmallQuotas.BundleBytes+1, 'a')), "bundle_bytes")
	var sent []kit.Bundle
	for i := range 9 { // each takes the place of the one before
		sent = append(sent, kit.BundleOf(SmallQuotas.BundleBytes, 'a'+byte(i)))
		h.OK(h.sendBundle(held, sent[i]))
	}
	for i := range 9 { // no upload is finished
		b := kit.BundleOf(SmallQuotas.BundleBytes, 'A'+byte(i))
		sent = append(sent, b)
		_, err := h.RunBundlePiece(h.Ctx, held, b.Piece(0))
		h.OK(err)
	}
	stored := 0
	for _, b := range sent { // each by its name: KEYS asks any node of a cluster
		n, err := h.Raw.Exists(h.Ctx, h.Prefix+"pieces:"+held.TaskID+":"+b.Digest()).Result()
		h.OK(err)
		stored += int(n)
	}
	if stored != 2 {
		h.Fatalf("the pieces of %d bundles are stored, want 2", stored)
	}
	h.End(held)
}

// bundlesOfATree is a tree whose tasks store a bundle each.
func bundlesOfATree(h *Attacker) {
	root := h.Start()
	h.OK(h.sendBundle(root, kit.BundleOf(300, 'a')))
	made, err := h.Delegate(h.Ctx, root, "k", picket.Subtask{Title: "a part", Role: "sub"})
	h.OK(err)
	leases, err := h.Acquire(h.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a2", Role: "sub"})
	h.OK(err)
	if len(leases) != 1 || leases[0].TaskID != made.TaskID {
		h.Fatalf("acquired %+v", leases)
	}
	child, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	h.OK(err)
	h.OK(h.sendBundle(child, kit.BundleOf(300, 'b')))
	h.wantQuotaRefusal(h.sendBundle(child, kit.BundleOf(300, 'c')), "bundles_bytes") // beside the one that is kept
	h.wantQuotaRefusal(h.sendBundle(root, kit.BundleOf(101, 'd')), "bundles_bytes")
	h.OK(h.sendBundle(root, kit.BundleOf(100, 'd')))
	h.OK(h.sendBundle(child, kit.BundleOf(300, 'c')))
	h.End(root)
}
