"""Minimum cuts by the algorithm of Boykov and Kolmogorov (2004).

Two trees grow along links with residual capacity, from sites with positive excess (side 1) and from sites with negative
excess (side -1).  Where they meet, a path is augmented.  Sites that it disconnects are adopted by others of their tree
or leave it, and the trees keep growing.  At the end, side 1 is the smallest set whose cut is minimal.

Slots are those of `Model`.  The columns of ``tree`` (S, 5) are a site's side, the slot to its parent, its distance to
the root, counted when the number of augmented paths was the next column, and whether it waits to grow.
"""

import numpy as np

from locpmap.kernels.numba.compiling import inner

SIDE, PARENT, DISTANCE, COUNTED, WAITS = range(5)
ROOT, ORPHAN = -1, -2  # parents of sites with excess, and of sites that lost their parent


@inner
def min_cut(indptr, neighbour, reverse, capacity, excess, tree, waiting, orphans):
    """Fill the sides of the tree for a network of excesses (S,) and capacities (2E,), which become residual.

    ``waiting`` and ``orphans``, (S + 2,), are scratch.  Stop early if a path has infinite capacity.
    """
    waiting[-2] = waiting[-1] = orphans[-2] = orphans[-1] = 0
    for i in range(len(excess)):
        tree[i, SIDE] = 1 if excess[i] > 0 else -1 if excess[i] < 0 else 0
        tree[i, PARENT], tree[i, DISTANCE], tree[i, COUNTED], tree[i, WAITS] = ROOT, 1, 0, 0
        if tree[i, SIDE] != 0:
            wait(tree, waiting, i)
    n_paths = 0
    while waiting[-1] > 0:
        i = take(waiting)
        tree[i, WAITS] = 0
        while tree[i, SIDE] != 0:
            joint = grow(indptr, neighbour, reverse, capacity, tree, waiting, i)
            if joint < 0:
                break
            n_paths += 1
            if not augment(neighbour, reverse, capacity, excess, tree, orphans, joint):
                return
            while orphans[-1] > 0:
                adopt(indptr, neighbour, reverse, capacity, tree, waiting, orphans, n_paths)


@inner
def grow(indptr, neighbour, reverse, capacity, tree, waiting, i):
    """Add free neighbours of a site to its tree; return the slot from side 1 to side -1 where trees meet, or -1."""
    side, below, counted = tree[i, SIDE], tree[i, DISTANCE] + 1, tree[i, COUNTED]
    for slot in range(indptr[i], indptr[i + 1]):
        j, back = neighbour[slot], reverse[slot]
        outward = slot if side > 0 else back
        if not capacity[outward] > 0:
            continue
        if tree[j, SIDE] == -side:
            return outward
        if tree[j, SIDE] == 0 or (tree[j, DISTANCE] > below and tree[j, COUNTED] <= counted):
            if tree[j, SIDE] == 0:
                wait(tree, waiting, j)
            tree[j, SIDE], tree[j, PARENT], tree[j, DISTANCE], tree[j, COUNTED] = side, back, below, counted
    return -1


@inner
def augment(neighbour, reverse, capacity, excess, tree, orphans, joint):
    """Push flow along the path through a slot, and list orphans; return False if the capacity is infinite."""
    amount = capacity[joint]
    for sign in range(-1, 2, 2):
        i = neighbour[joint if sign < 0 else reverse[joint]]
        while tree[i, PARENT] != ROOT:
            up = tree[i, PARENT]
            here = capacity[up if sign < 0 else reverse[up]]
            amount = here if here < amount else amount
            i = neighbour[up]
        here = sign * excess[i]
        amount = here if here < amount else amount
    if amount == np.inf:
        return False
    capacity[joint] -= amount
    capacity[reverse[joint]] += amount
    for sign in range(-1, 2, 2):
        i = neighbour[joint if sign < 0 else reverse[joint]]
        while tree[i, PARENT] != ROOT:
            up = tree[i, PARENT]
            used, other = (up, reverse[up]) if sign < 0 else (reverse[up], up)
            capacity[used] -= amount
            capacity[other] += amount
            if capacity[used] == 0:
                tree[i, PARENT] = ORPHAN
                put(orphans, i)
            i = neighbour[up]
        excess[i] -= sign * amount
        if excess[i] == 0:
            tree[i, PARENT] = ORPHAN
            put(orphans, i)
    return True


@inner
def adopt(indptr, neighbour, reverse, capacity, tree, waiting, orphans, n_paths):
    """Attach the first orphan to the neighbour closest to a root, or remove it from its tree."""
    i = take(orphans)
    side, nearest = tree[i, SIDE], 0
    for slot in range(indptr[i], indptr[i + 1]):
        j = neighbour[slot]
        if tree[j, SIDE] == side and capacity[reverse[slot] if side > 0 else slot] > 0:
            far = depth(neighbour, tree, n_paths, j)
            if far > 0 and (nearest == 0 or far < nearest):
                nearest, tree[i, PARENT] = far, slot
    if nearest > 0:
        tree[i, DISTANCE], tree[i, COUNTED] = nearest + 1, n_paths
        return
    for slot in range(indptr[i], indptr[i + 1]):
        j, back = neighbour[slot], reverse[slot]
        if tree[j, SIDE] == side:
            if capacity[back if side > 0 else slot] > 0:
                wait(tree, waiting, j)
            if tree[j, PARENT] == back:
                tree[j, PARENT] = ORPHAN
                put(orphans, j)
    tree[i, SIDE] = 0


@inner
def depth(neighbour, tree, n_paths, i):
    """Return the number of sites from a site to its root, 0 if an orphan is on the way; remember distances."""
    far, j = 0, i
    while tree[j, COUNTED] != n_paths:
        up = tree[j, PARENT]
        if up == ORPHAN:
            return 0
        if up == ROOT:
            tree[j, DISTANCE], tree[j, COUNTED] = 1, n_paths
        else:
            far += 1
            j = neighbour[up]
    far += tree[j, DISTANCE]
    j, left = i, far
    while tree[j, COUNTED] != n_paths:
        tree[j, DISTANCE], tree[j, COUNTED] = left, n_paths
        left -= 1
        j = neighbour[tree[j, PARENT]]
    return far


@inner
def wait(tree, waiting, i):
    """Let a site wait to grow, if it does not yet."""
    if tree[i, WAITS] == 0:
        tree[i, WAITS] = 1
        put(waiting, i)


# Ring buffers of sites; the last two entries are the start and the length.


@inner
def put(ring, i):
    """Append a site."""
    room = len(ring) - 2
    at = ring[room] + ring[room + 1]
    ring[at if at < room else at - room] = i
    ring[room + 1] += 1


@inner
def take(ring):
    """Remove and return the first site."""
    room = len(ring) - 2
    i = ring[ring[room]]
    ring[room] = ring[room] + 1 if ring[room] + 1 < room else 0
    ring[room + 1] -= 1
    return i
