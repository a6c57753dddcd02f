(** Units of earlier windows. The model of [src/algorithm/carried.rs] and [lua/periods.lua], for the two
    algorithms that count by periods. *)

From Proofs Require Import Changes.

(** All units until [hold], none from [zero] on, and evenly less in between. *)
Record ramp := Ramp { hold : Z; zero : Z }.

Definition weight (r : ramp) (u now : Z) : Z :=
  if zero r <=? now then 0
  else if now <=? hold r then u
  else ceiling (u * (zero r - now)) (zero r - hold r).

(** Units of earlier windows: one number, and the rule by which they leave. *)
Record carried := Carried { units_left : Z; rule : ramp }.

Definition nothing : carried := Carried 0 (Ramp 0 0).

Definition weigh (now : Z) (c : carried) : Z := weight (rule c) (units_left c) now.

(** The rule, of the old and the new window, by which the last unit leaves first. *)
Definition earlier (old new : ramp) : ramp := if zero new <? zero old then new else old.

(** The first multiple of the window after a time. *)
Definition next_edge (t w : Z) : Z := (t / w + 1) * w.

(** The first time in [low .. high] at which [used] is at most [target]. *)
Fixpoint search (steps : nat) (low high target : Z) (used : Z -> Z) : Z :=
  match steps with
  | O => low
  | S steps =>
      if low <? high then
        let middle := (low + high) / 2 in
        if used middle <=? target then search steps low middle target used
        else search steps (middle + 1) high target used
      else low
  end.

Definition first_time (low high target : Z) (used : Z -> Z) : Z :=
  search (Z.to_nat (Z.log2 (high - low) + 2)) low (Z.max low high) target used.

Definition no_debt (c : carried) : Prop := 0 <= units_left c.

Lemma weight_nonneg : forall r u now, 0 <= u -> 0 <= weight r u now.
Proof.
  intros r u now Hu. unfold weight. destruct (Z.leb_spec (zero r) now); [lia|].
  destruct (Z.leb_spec now (hold r)); [assumption|]. apply ceiling_nonneg; nia.
Qed.

Lemma weigh_nonneg : forall now c, no_debt c -> 0 <= weigh now c.
Proof. intros now c H. exact (weight_nonneg (rule c) (units_left c) now H). Qed.
