(** Sliding log. The model of [src/algorithm/ring.rs] and [lua/sliding_log.lua] under one quota:
    a ring whose stamps are exact up to 10,000 records, and then rounded up to the next of 10,000 edges
    a window.

    The bound of the documentation: no window has more than [L] units. *)

From Proofs Require Import Machine Arithmetic Ring.

(** The end of the bucket that holds a time. Edges are the multiples of [W / n], each rounded up. *)
Definition bucket_end (W n t : Z) : Z := ceiling ((t * n / W + 1) * W) n.

Lemma bucket_ends_later : forall W n t, 0 < W -> 0 < n -> t < bucket_end W n t.
Proof.
  intros W n t HW Hn. unfold bucket_end.
  pose proof (ceiling_ge ((t * n / W + 1) * W) n Hn).
  pose proof (floor_lt (t * n) W (t * n / W + 1) HW). nia.
Qed.

(** Units come back at most [W / n] late, rounded up. *)
Theorem bucket_is_short : forall W n t, 0 < W -> 0 < n -> bucket_end W n t <= t + ceiling W n.
Proof.
  intros W n t HW Hn. unfold bucket_end. apply ceiling_le; [assumption|].
  pose proof (ceiling_ge W n Hn). pose proof (floor_ge (t * n) W (t * n / W) HW). nia.
Qed.

Section SlidingLog.
Variables L W : Z.
Hypothesis limit_positive : 0 < L.
Hypothesis window_positive : 0 < W.

Definition edges : Z := 10000.

Definition log_stamp (records : list (Z * Z)) (t : Z) : Z :=
  if (edges <? Z.max L (Z.of_nat (length records) + 1)) && (edges <? W)
  then bucket_end W edges t else t.

Definition sliding_log : machine := ring L W log_stamp.

Lemma log_stamp_is_not_before : forall records t, t <= log_stamp records t.
Proof.
  intros. unfold log_stamp. pose proof (bucket_ends_later W edges t window_positive ltac:(easy)).
  destruct (_ && _); lia.
Qed.

Theorem sliding_log_bound : bounded sliding_log W L.
Proof. apply ring_bound; auto using log_stamp_is_not_before. Qed.

Theorem sliding_log_wait : exact_wait sliding_log.
Proof. apply ring_wait; auto using log_stamp_is_not_before. Qed.

(** Below both thresholds, times are exact. *)
Theorem log_is_exact : forall records t, W <= edges \/ Z.max L (Z.of_nat (length records) + 1) <= edges ->
  log_stamp records t = t.
Proof.
  intros records t H. unfold log_stamp.
  replace ((edges <? _) && (edges <? W)) with false; [reflexivity|].
  symmetry. apply andb_false_iff. rewrite !Z.ltb_ge. tauto.
Qed.
End SlidingLog.
