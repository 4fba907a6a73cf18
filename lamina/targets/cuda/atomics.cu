/* Combines memory with a value, whoever else does at the same time: integers, whose sums and extremes are
   the same in any order. An old value may be read before, as extremes only grow, or only shrink. */

INLINE void atomic_sum(i32 *at, i32 value) { atomicAdd(at, value); }
INLINE void atomic_sum(i64 *at, i64 value) { atomicAdd((u64 *)at, (u64)value); }
template <class T> INLINE void atomic_max(T *at, T value) { if (*(volatile T *)at < value) atomicMax(at, value); }
template <class T> INLINE void atomic_min(T *at, T value) { if (*(volatile T *)at > value) atomicMin(at, value); }
