(** Sliding buckets. The model of [src/algorithm/ring.rs] and [lua/sliding_buckets.lua] under
    one quota: a ring whose stamps are the ends of [n] buckets a window.

    The bounds of the documentation: no window has more than [L] units, and at most [n + 1] records
    count at a time. That a unit comes back at most [W / n] late is [bucket_is_short] in SlidingLog.v. *)

From Proofs Require Import Machine Arithmetic Ring SlidingLog.

Section SlidingBuckets.
Variables L W n : Z.
Hypothesis limit_positive : 0 < L.
Hypothesis window_positive : 0 < W.
Hypothesis buckets_positive : 0 < n.

Definition sliding_buckets : machine := ring L W (fun _ t => bucket_end W n t).

Lemma stamp_is_not_before : forall (records : list (Z * Z)) t, t <= bucket_end W n t.
Proof. intros. pose proof (bucket_ends_later W n t window_positive buckets_positive). lia. Qed.

Theorem sliding_buckets_bound : bounded sliding_buckets W L.
Proof. apply ring_bound; auto using stamp_is_not_before. Qed.

Theorem sliding_buckets_wait : exact_wait sliding_buckets.
Proof. apply ring_wait; auto using stamp_is_not_before. Qed.
End SlidingBuckets.
