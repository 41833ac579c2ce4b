package kube

import (
	"context"
	_ "embed" // the manifests
	"os"
)

// The shop: Deployments client, cart and stock in the namespace shop.
var (
	//go:embed manifests/shop.yaml
	Shop []byte
	// Faults of the shop, as patches: of its Deployment cart, of its Service stock.
	//go:embed manifests/cart-cpu-limit.yaml
	CartCPULimit []byte
	//go:embed manifests/stock-selector.yaml
	StockSelector []byte
	// CartRelease is none: it has cart's pods replaced by the same.
	//go:embed manifests/cart-release.yaml
	CartRelease []byte
)

// ShopNamespace is where the shop is.
const ShopNamespace = "shop"

// StartShop starts a node with the shop's images on it.
func StartShop(ctx context.Context, opt Options) (*Node, error) {
	dir, err := os.MkdirTemp("", "slowray-shop-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the node has made its images of it
	images, err := shopImages(ctx, dir)
	if err != nil {
		return nil, err
	}
	opt.Images = append(images, opt.Images...)
	return Start(ctx, opt)
}

// Deploy deploys the shop and waits until it serves.
func (c *Client) Deploy(ctx context.Context) error {
	if err := c.Apply(ctx, Shop); err != nil {
		return err
	}
	return c.RolledOut(ctx, ShopNamespace, "stock", "cart", "client")
}
