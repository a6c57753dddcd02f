(** Division that rounds up, as in [src/algorithm/math.rs]. *)

From Proofs Require Import Machine.

Definition ceiling (a b : Z) : Z := a / b + (if a mod b =? 0 then 0 else 1).

Lemma ceiling_le : forall a b k, 0 < b -> (ceiling a b <= k <-> a <= k * b).
Proof.
  intros a b k Hb. unfold ceiling. pose proof (Z.div_mod a b ltac:(lia)).
  pose proof (Z.mod_pos_bound a b Hb). destruct (Z.eqb_spec (a mod b) 0); nia.
Qed.

Lemma ceiling_ge : forall a b, 0 < b -> a <= ceiling a b * b.
Proof. intros. apply ceiling_le; lia. Qed.

Lemma ceiling_nonneg : forall a b, 0 < b -> 0 <= a -> 0 <= ceiling a b.
Proof.
  intros. unfold ceiling. pose proof (Z.div_pos a b). destruct (a mod b =? 0); lia.
Qed.

Lemma ceiling_pos : forall a b, 0 < b -> 0 < a -> 0 < ceiling a b.
Proof.
  intros a b Hb Ha. destruct (Z_lt_ge_dec 0 (ceiling a b)) as [|H]; [assumption|].
  pose proof (proj1 (ceiling_le a b 0 Hb)). lia.
Qed.

(** Rounding down: the largest [q] with [q * b <= a]. *)
Lemma floor_ge : forall a b k, 0 < b -> (k <= a / b <-> k * b <= a).
Proof.
  intros a b k Hb. pose proof (Z.div_mod a b ltac:(lia)). pose proof (Z.mod_pos_bound a b Hb).
  split; nia.
Qed.

Lemma floor_lt : forall a b k, 0 < b -> (a / b < k <-> a < k * b).
Proof. intros a b k Hb. pose proof (floor_ge a b k Hb). lia. Qed.
