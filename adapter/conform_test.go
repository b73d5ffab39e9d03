//go:build unix

package adapter_test

import (
	"context"
	"testing"

	"github.com/picket-dev/picket/adapter/adaptertest"
)

func TestConforms(t *testing.T) {
	adaptertest.Conform(t, func(ctx context.Context, s *adaptertest.Server, command []string) error {
		return newAdapter(t, s, command).Run(ctx)
	})
}
