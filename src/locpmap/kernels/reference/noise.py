"""Definition of all noise: the Philox-4x32-10 generator and two schemes that turn its integers into Gumbel noise.

Every random number in the library is a pure function of ``(seed, stream, image, sample, site, label)``.
The seed is the 64-bit key; the rest is packed into the 128-bit counter::

    c0 = site mod 2^32
    c1 = (site div 2^32) + (group << 16)       group: label div 4, 16 bits
    c2 = sample
    c3 = image + (stream << 28)                images: 28 bits, streams: 4 bits

One call of Philox gives four 32-bit words.  A word x becomes the uniform ``(x div 2^9 + 1/2) / 2^23``.  These are 24
bits including the half: exact in single precision, and never 0 or 1, so no logarithm below is infinite.

**plain**: label k of a site gets ``-log(-log u)`` with u from word ``k mod 4`` of group ``k div 4``.

**lazy** (more than two labels, Potts weights >= 0): the noise is ordered so that most of it is never computed.  With
``p = softmax(unary)``, write perturbed scores as *clocks* ``T_k = exp(-(unary_k + Gumbel)) ~ Exp(rate p_k)`` up to
scale; the smallest clock is the largest score.  The smallest clock is ``T_a ~ Exp(1)`` of a label
``a ~ Categorical(p)``, the *first label*.  By memorylessness the others are ``T_k = T_a + Exp(1) / p_k``; the second
term is the *wait* of label k.  One word per site selects ``a`` and holds the leading byte of T_a's uniform.  One call
gives the leading bytes of sixteen waits.  The other 24 bits are computed only if the bytes leave the best label open.

**lazy, two labels**: only the difference of the two noise values matters, which is logistic: one uniform per site.  Its
leading 16 bits nearly always decide; one call gives them for eight samples.  The other 16 have their own stream.
"""

import numpy as np

from locpmap.arrays import Array

Key = tuple[int, int]

# Streams separate different uses of the same (image, sample, site).
PLAIN, LAZY_SITE, LAZY_CLOCK, LOGISTIC, START, START_BITS, CHAIN, DROP, LAZY_FINE, LOGISTIC_FINE = range(10)
SHARED, PRESENCE, PHASE, FIELD = range(10, 14)  # for error fields
CLOCK = 14  # candidates for the labels of a line, one per group

BITS = 23  # leading bits of a word that form a uniform

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox(counter: tuple[Array, Array, Array, Array], key: Key) -> tuple[Array, ...]:
    """Return four arrays of 32-bit words: ten rounds of Philox-4x32 (Salmon et al. 2011) on arrays of counters."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = key
    for _ in range(10):
        product0 = np.uint64(0xD2511F53) * c0
        product1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (product1 >> _32) ^ c1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _32) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(key: Key, stream: int, image: int | Array, sample: int, sites: Array, group: int = 0) -> Array:
    """Return the four words of every site, (4, n_sites)."""
    site = sites.astype(np.uint64)
    like = np.zeros_like(site)
    c1 = (site >> _32) + np.uint64(group << 16)
    counter = (site & _LOW, c1, like + np.uint64(sample), like + np.uint64(image + (stream << 28)))
    return np.stack(philox(counter, key))


def uniform(word: Array) -> Array:
    """Convert 32-bit words to numbers strictly inside (0, 1)."""
    return ((word >> np.uint64(32 - BITS)).astype(np.float64) + 0.5) / 2.0**BITS


def label_uniforms(key: Key, stream: int, image: int, sample: int, sites: Array, n_labels: int) -> Array:
    """Return one uniform per site and label, (n_sites, n_labels)."""
    groups = [words(key, stream, image, sample, sites, g) for g in range((n_labels + 3) // 4)]
    return uniform(np.concatenate(groups)[:n_labels].T)


def gumbel(key: Key, image: int, sample: int, sites: Array, n_labels: int) -> Array:
    """Return standard Gumbel noise of the plain scheme, (n_sites, n_labels)."""
    return -np.log(-np.log(label_uniforms(key, PLAIN, image, sample, sites, n_labels)))


def perturbed_plain(unary: Array, temperature: float, key: Key, image: int, sample: int, sites: Array) -> Array:
    """Return ``unary + temperature · Gumbel`` of the plain scheme, (n_sites, n_labels)."""
    return unary + temperature * gumbel(key, image, sample, sites, unary.shape[1])


def perturbed_lazy(unary: Array, temperature: float, key: Key, image: int, sample: int, sites: Array) -> Array:
    """Return the same distribution, up to a constant per site, in the lazy scheme, (n_sites, n_labels)."""
    scaled = unary / temperature
    if unary.shape[1] == 2:
        # Label 1 has the larger score iff logit(u) < d = scaled[1] - scaled[0], i.e. u < sigmoid(d).
        # This has probability sigmoid(d).
        u = logistic_uniform(key, image, sample, sites)
        return temperature * np.stack([scaled[:, 0], scaled[:, 1] - np.log(u / (1 - u))], axis=1)
    scaled = scaled - scaled.max(axis=1, keepdims=True)
    log_p = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    first = words(key, LAZY_SITE, image, sample >> 2, sites)[sample & 3]
    winner = first_label(np.exp(log_p), uniform(first))
    fine = np.concatenate([words(key, LAZY_FINE, image, sample, sites, g) for g in range(unary.shape[1] // 4 + 1)])
    clock = np.log(-np.log(joined(first & np.uint64(255), fine[0])))[:, None]
    coarse = lazy_bytes(key, image, sample, sites, unary.shape[1])
    wait = np.log(-np.log(joined(coarse, fine[1 : unary.shape[1] + 1]))).T
    # In logarithms, so that a label with a tiny probability can still win through its neighbours.
    clocks = np.logaddexp(clock, wait - log_p)
    np.put_along_axis(clocks, winner[:, None], clock, axis=1)
    return -temperature * clocks


def joined(coarse: Array, fine: Array) -> Array:
    """Return a uniform of 32 bits: the leading eight from a byte, the other 24 from a word."""
    return (coarse.astype(np.float64) * 2.0**24 + (fine >> np.uint64(8)).astype(np.float64) + 0.5) / 2.0**32


def lazy_bytes(key: Key, image: int, sample: int, sites: Array, n_labels: int) -> Array:
    """Return the leading bytes of all labels' waits, (n_labels, n_sites).

    A call of Philox gives sixteen bytes: for four samples (up to 4 labels), two (up to 8 labels) or one sample.
    """
    room = 4 if n_labels <= 4 else 8 if n_labels <= 8 else 16
    shared = 16 // room  # samples that share a call
    groups = [words(key, LAZY_CLOCK, image, sample // shared, sites, g) for g in range((n_labels + room - 1) // room)]
    in_bytes = [
        word >> np.uint64(shift) & np.uint64(255) for word in np.concatenate(groups) for shift in (0, 8, 16, 24)
    ]
    return np.stack(in_bytes)[sample % shared * room :][:n_labels]


def first_label(p: Array, u: Array) -> Array:
    """Invert the cumulative distribution at u, with the most probable label first and the others in natural order."""
    n_labels = p.shape[1]
    best = p.argmax(axis=1)
    rank = np.arange(n_labels)[None] + (np.arange(n_labels)[None] < best[:, None])
    rank[np.arange(len(p)), best] = 0
    order = np.argsort(rank, axis=1)
    cumulative = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    position = np.minimum((u[:, None] > cumulative).sum(axis=1), n_labels - 1)
    return order[np.arange(len(p)), position]


def logistic_uniform(key: Key, image: int, sample: int, sites: Array) -> Array:
    """Return the uniform for two labels: half-word s mod 8 (low half first) of the calls with sample s div 8."""
    word, shift = sample >> 1 & 3, np.uint64(16 * (sample & 1))
    coarse, fine = (
        words(key, stream, image, sample >> 3, sites)[word] >> shift for stream in (LOGISTIC, LOGISTIC_FINE)
    )
    half = np.uint64(0xFFFF)
    return (((coarse & half) * 2.0**16 + (fine & half)) + 0.5) / 2.0**32


def lazy_start(unary: Array, key: Key, image: int, sample: int, sites: Array) -> Array:
    """Return random start labels in the lazy scheme; four samples share a call of Philox."""
    if unary.shape[1] == 2:
        return start_bits(unary, key, image, sample, sites)
    return start_labels(unary, words(key, START, image, sample >> 2, sites)[sample & 3])


def start_labels(unary: Array, word: Array) -> Array:
    """Return a random allowed label per site: number ``word · n_allowed div 2^32`` of those above -inf."""
    allowed = unary > -np.inf
    nth = (word * allowed.sum(axis=1).astype(np.uint64)) >> _32
    return np.argmax(np.cumsum(allowed, axis=1) > nth.astype(np.int64)[:, None], axis=1)


def start_bits(unary: Array, key: Key, image: int, sample: int, sites: Array) -> Array:
    """Return random start labels for two labels: one bit per sample, 128 samples per call of Philox."""
    word = words(key, START_BITS, image, sample >> 7, sites)[(sample >> 5) & 3]
    bit = ((word >> np.uint64(sample & 31)) & np.uint64(1)).astype(np.int64)
    forbidden = unary == -np.inf
    return np.where(forbidden[:, 0], 1, np.where(forbidden[:, 1], 0, bit))
