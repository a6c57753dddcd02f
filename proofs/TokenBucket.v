(** Token bucket. The model of [src/algorithm/token_bucket.rs] and [lua/token_bucket.lua] under one
    quota. A key has a debt of units, less a credit in [1 / W] units, at the time of its last charge.

    The theorem: in any time of [d] microseconds, at most [burst + L (d - 1) / W] units are charged. The
    bound of the documentation follows from it, [burst + L] in a window, and so does the bound of leases,
    which need a longer time.

    The reason: the exact debt, in [1 / W] units, loses at most [L] in a microsecond. It is never
    negative, and never more than [burst * W] after a charge. *)

From Proofs Require Import Machine Arithmetic.

Section TokenBucket.
Variables L W burst : Z.
Hypothesis limit_positive : 0 < L.
Hypothesis window_positive : 0 < W.
Hypothesis burst_positive : 0 < burst.

Record debts := Debts { debt : Z; credit : Z; anchor : Z }.

(** Debt and credit at a time. *)
Definition judged (s : debts) (now : Z) : Z * Z :=
  let paid := ((now - anchor s) * L + credit s) / W in
  let rest := ((now - anchor s) * L + credit s) mod W in
  if paid <? debt s then (debt s - paid, rest) else (0, 0).

Definition token_bucket : machine := {|
  state := debts;
  empty := Debts 0 0 0;
  capacity := burst;
  free s now := Z.max 0 (burst - fst (judged s now));
  charge s now c :=
    Debts (Z.min (fst (judged s now) + c) (burst + L)) (snd (judged s now)) now;
  wait s now c :=
    let (d, r) := judged s now in
    if d <=? burst - c then 0 else ceiling ((d - (burst - c)) * W - r) L
|}.

(** The exact debt, in [1 / W] units. *)
Definition exact_debt (d r : Z) : Z := d * W - r.

Definition sound (s : debts) : Prop :=
  0 <= credit s < W /\ 0 <= debt s <= burst /\ 0 <= exact_debt (debt s) (credit s).

Lemma judged_is_sound : forall s now, sound s -> anchor s <= now ->
  let (d, r) := judged s now in
  0 <= r < W /\ 0 <= d <= burst /\ 0 <= exact_debt d r /\
  exact_debt (debt s) (credit s) - (now - anchor s) * L <= exact_debt d r.
Proof.
  intros s now (Hc & Hd & He) Hn. unfold judged, exact_debt in *.
  set (e := (now - anchor s) * L + credit s). assert (0 <= e) by nia.
  pose proof (Z.div_mod e W ltac:(lia)). pose proof (Z.mod_pos_bound e W window_positive).
  pose proof (Z.div_pos e W ltac:(lia) window_positive).
  destruct (Z.ltb_spec (e / W) (debt s)); repeat split; nia.
Qed.

Lemma reached_is_sound : forall h, legal token_bucket h ->
  sound (after token_bucket h) /\ anchor (after token_bucket h) = latest h.
Proof.
  induction h as [|[t c] h IH]; cbn.
  - unfold sound, exact_debt. cbn. lia.
  - intros (H & Ht & Hc). destruct (IH H) as [S A]. clear IH.
    pose proof (judged_is_sound _ t S ltac:(lia)) as J.
    cbn in Hc. destruct (judged _ t) as [d r]. cbn in *. unfold sound, exact_debt in *. cbn.
    rewrite Z.min_l by lia. repeat split; nia.
Qed.

(** Units charged from [from + 1] on are still a debt, or have been paid since then. *)
Lemma charged_is_owed_or_paid : forall h from, legal token_bucket h -> from < latest h ->
  units (newer from) h * W <=
    exact_debt (debt (after token_bucket h)) (credit (after token_bucket h))
      + L * (latest h - from - 1).
Proof.
  induction h as [|[t c] h IH]; intros from H Hf; [cbn in *; unfold exact_debt; cbn; nia|].
  cbn [latest] in *. destruct H as (H & Ht & Hc). destruct (reached_is_sound h H) as [S A].
  pose proof (judged_is_sound _ t S ltac:(lia)) as J. cbn in Hc |- *.
  destruct (judged _ t) as [d r]. cbn in *. rewrite Z.min_l by lia.
  replace (newer from t) with true by (unfold newer; symmetry; lia).
  unfold exact_debt in *.
  destruct (Z_lt_ge_dec from (latest h)) as [Hl|Hl].
  - specialize (IH from H Hl). nia.
  - rewrite (none_newer_than_latest token_bucket) by (assumption || lia). nia.
Qed.

Theorem token_bucket_bound_of_any_time : forall d, 0 < d ->
  bounded token_bucket d (burst + L * (d - 1) / W).
Proof.
  intros d Hd. pose proof (Z.div_pos (L * (d - 1)) W ltac:(nia) window_positive) as P0.
  apply bound_of_windows; [lia|]. intros h x H Hl Hx.
  pose proof (charged_is_owed_or_paid h (x - d) H ltac:(lia)) as P.
  destruct (reached_is_sound h H) as [(Hc & Hb & _) _]. unfold exact_debt in P.
  enough (units (newer (x - d)) h - burst <= L * (d - 1) / W) by lia.
  apply floor_ge; [assumption|]. nia.
Qed.

Theorem token_bucket_bound : bounded token_bucket W (burst + L).
Proof.
  intros h x H. pose proof (token_bucket_bound_of_any_time W window_positive h x H).
  assert (L * (W - 1) / W <= L) by (apply Z.div_le_upper_bound; nia). lia.
Qed.

Theorem token_bucket_bound_less_1 : bounded token_bucket W (burst + L - 1).
Proof.
  intros h x H. pose proof (token_bucket_bound_of_any_time W window_positive h x H).
  assert (L * (W - 1) / W <= L - 1).
  { pose proof (floor_lt (L * (W - 1)) W L window_positive). nia. }
  lia.
Qed.

Theorem token_bucket_wait : exact_wait token_bucket.
Proof.
  intros h now c t H Hl Hc Ht. destruct (reached_is_sound h H) as [S A].
  pose proof (judged_is_sound _ now S ltac:(lia)) as J.
  cbn [wait free capacity token_bucket] in *. set (s := after token_bucket h) in *.
  unfold judged in *.
  set (e := (now - anchor s) * L + credit s) in *.
  replace ((t - anchor s) * L + credit s) with (e + (t - now) * L) by (unfold e; nia).
  set (f := e + (t - now) * L). destruct S as (Sc & Sd & Se).
  assert (0 <= e) by (unfold e; nia). assert (e <= f) by (unfold f; nia).
  pose proof (Z.div_mod e W ltac:(lia)). pose proof (Z.mod_pos_bound e W window_positive).
  pose proof (Z.div_mod f W ltac:(lia)). pose proof (Z.mod_pos_bound f W window_positive).
  (* Units are free as soon as [k] units are paid. *)
  set (k := debt s - (burst - c)).
  assert (F : c <= Z.max 0 (burst - fst (if f / W <? debt s then (debt s - f / W, f mod W) else (0, 0)))
    <-> k <= f / W).
  { unfold k. destruct (Z.ltb_spec (f / W) (debt s)); cbn; lia. }
  rewrite F, floor_ge by assumption. clear F.
  destruct (Z.ltb_spec (e / W) (debt s)); cbn in *.
  - destruct (Z.leb_spec (debt s - e / W) (burst - c)); [split; [lia|]; unfold k; nia|].
    pose proof (ceiling_le ((debt s - e / W - (burst - c)) * W - e mod W) L (t - now) limit_positive).
    pose proof (ceiling_nonneg ((debt s - e / W - (burst - c)) * W - e mod W) L limit_positive).
    split; [nia|]. unfold k, f in *. nia.
  - replace (0 <=? burst - c) with true by (symmetry; lia). split; [lia|]. unfold k. nia.
Qed.
End TokenBucket.

(** A window of [W] microseconds has [W - 1] steps of a microsecond, so the last unit of [burst + L] never
    fits. Here, one unit less is reached. *)
Example one_unit_less_is_reached :
  let h := checks (token_bucket 10 10 5) [(10, 5); (5, 4); (1, 5)] in
  units (within (10 - 10) 10) h = 5 + 10 - 1.
Proof. reflexivity. Qed.
