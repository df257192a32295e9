"""Matrices in full, for comparison."""


def kronecker_product(factors):
    """Return ⊗_d A_jd (J, m, m) for factors (J, d, n, n)."""
    product = factors[:, 0]
    for k in range(1, factors.shape[1]):
        product = (product[:, :, None, :, None] * factors[:, k, None, :, None, :]).flatten(3, 4).flatten(1, 2)
    return product
