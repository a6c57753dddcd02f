(** Sliding counter. The model of [src/algorithm/periods.rs] and [lua/periods.lua]
    under one quota. The estimate is [ceil(previous * (end - now) / W) + current].

    The bound of the documentation: no window has more than [2 L - 1] units. If the older of the two
    periods that a window meets has a unit, then this unit weighs at least 1 until the end of the newer
    one, because the estimate is rounded up: the newer period has at most [L - 1].

    [the_bound_is_reached] shows that no smaller bound holds. *)

From Proofs Require Import Machine Arithmetic FixedWindow.

Section SlidingCounter.
Variables L W : Z.
Hypothesis limit_positive : 0 < L.
Hypothesis window_positive : 0 < W.

Record counters := Counters { last_charge : Z; now_counted : Z; counted_before : Z }.

Definition current (s : counters) (now : Z) : Z :=
  if now / W =? last_charge s / W then now_counted s else 0.

Definition previous (s : counters) (now : Z) : Z :=
  if now / W =? last_charge s / W then counted_before s
  else if now / W =? last_charge s / W + 1 then now_counted s else 0.

Definition period_end (now : Z) : Z := (now / W + 1) * W.

Definition estimate (s : counters) (now : Z) : Z :=
  current s now + ceiling (previous s now * (period_end now - now)) W.

Definition sliding_counter : machine := {|
  state := counters;
  empty := Counters 0 0 0;
  capacity := L;
  free s now := Z.max 0 (L - estimate s now);
  charge s now c := Counters now (current s now + c) (previous s now);
  wait s now c :=
    let room := L - c - current s now in
    if room <? 0 then period_end now + W - (L - c) * W / current s now - now
    else if estimate s now <=? L - c then 0
    else period_end now - room * W / previous s now - now
|}.

Notation of_period := (of_period W).

Lemma before_the_period : forall h p, legal sliding_counter h -> latest h / W < p ->
  units (of_period p) h = 0.
Proof.
  intros h p H Hp. apply units_none. eapply Forall_impl; [|exact (legal_times _ h H)].
  intros [t c] Ht. cbn in *. unfold FixedWindow.of_period. apply Z.eqb_neq.
  pose proof (period_mono W window_positive t (latest h) Ht). lia.
Qed.

(** The two counters are what the two periods hold. *)
Lemma counters_are_periods : forall h now, legal sliding_counter h -> latest h <= now ->
  current (after sliding_counter h) now = units (of_period (now / W)) h /\
  previous (after sliding_counter h) now = units (of_period (now / W - 1)) h.
Proof.
  induction h as [|[t c] h IH]; intros now H Hl.
  - cbn. unfold current, previous. cbn. destruct (_ =? _); [split; reflexivity|].
    destruct (_ =? _); split; reflexivity.
  - cbn in Hl |- *. destruct H as (H & Ht & _). destruct (IH t H Ht) as [IH1 IH2].
    pose proof (period_mono W window_positive _ _ Hl).
    pose proof (period_mono W window_positive _ _ Ht).
    rewrite IH1, IH2. unfold current, previous. cbn.
    change (of_period (now / W) t) with (t / W =? now / W).
    change (of_period (now / W - 1) t) with (t / W =? now / W - 1).
    destruct (Z.eqb_spec (now / W) (t / W)) as [E|E].
    + rewrite E, Z.eqb_refl. replace (t / W =? t / W - 1) with false by (symmetry; lia). lia.
    + replace (t / W =? now / W) with false by (symmetry; lia).
      rewrite (before_the_period h (now / W)) by (assumption || lia).
      destruct (Z.eqb_spec (now / W) (t / W + 1)) as [E'|E'].
      * rewrite E'. replace (t / W =? t / W + 1 - 1) with true by (symmetry; lia).
        replace (t / W + 1 - 1) with (t / W) by lia. lia.
      * replace (t / W =? now / W - 1) with false by (symmetry; lia).
        rewrite (before_the_period h (now / W - 1)) by (assumption || lia). lia.
Qed.

Lemma before_the_end : forall now, 0 < period_end now - now <= W.
Proof.
  intros now. unfold period_end. pose proof (Z.div_mod now W ltac:(lia)).
  pose proof (Z.mod_pos_bound now W window_positive). lia.
Qed.

(** At a charge: the period so far, the charge, and 1 unit if the period before has any. *)
Lemma a_charge_leaves_room_for_the_past : forall h t c,
  legal sliding_counter ((t, c) :: h) ->
  units (of_period (t / W)) h + c <= L /\
  (0 < units (of_period (t / W - 1)) h -> units (of_period (t / W)) h + c <= L - 1).
Proof.
  intros h t c (H & Ht & Hc). cbn in Hc.
  destruct (counters_are_periods h t H Ht) as [E1 E2]. unfold estimate in Hc. rewrite E1, E2 in Hc.
  pose proof (before_the_end t). pose proof (units_nonneg _ (of_period (t / W - 1)) h H).
  pose proof (ceiling_nonneg (units (of_period (t / W - 1)) h * (period_end t - t)) W
    window_positive ltac:(nia)).
  split; [lia|]. intros Hp.
  pose proof (ceiling_pos (units (of_period (t / W - 1)) h * (period_end t - t)) W
    window_positive ltac:(nia)). lia.
Qed.

(** Two neighbouring periods. *)
Lemma two_periods : forall h p, legal sliding_counter h ->
  units (of_period p) h <= L /\
  (0 < units (of_period (p - 1)) h -> units (of_period p) h <= L - 1).
Proof.
  induction h as [|[t c] h IH]; intros p H; cbn; [lia|].
  pose proof (a_charge_leaves_room_for_the_past h t c H) as A. destruct H as (H & Ht & Hc).
  specialize (IH p H). unfold FixedWindow.of_period at 1 3 5.
  destruct (Z.eqb_spec (t / W) p) as [<-|Hp].
  - replace (t / W =? t / W - 1) with false by (symmetry; lia). lia.
  - destruct (Z.eqb_spec (t / W) (p - 1)) as [E|E]; [|lia].
    (* The charge lies in the older period, so the newer one is empty. *)
    pose proof (period_mono W window_positive _ _ Ht).
    rewrite (before_the_period h p) by (assumption || lia). lia.
Qed.

Theorem two_periods_have_at_most_2L_minus_1 : forall h p, legal sliding_counter h ->
  units (of_period (p - 1)) h + units (of_period p) h <= 2 * L - 1.
Proof.
  intros h p H. destruct (two_periods h p H). destruct (two_periods h (p - 1) H).
  pose proof (units_nonneg _ (of_period (p - 1)) h H). lia.
Qed.

Theorem sliding_counter_bound : bounded sliding_counter W (2 * L - 1).
Proof.
  intros h x H.
  pose proof (units_cover _ _ _ _ h H (window_meets_two_periods W window_positive x)).
  pose proof (two_periods_have_at_most_2L_minus_1 h (x / W) H). lia.
Qed.

(** The counters later, if nothing is charged in between: the current period becomes the previous. *)
Lemma estimate_later : forall h now t, legal sliding_counter h -> latest h <= now -> now <= t ->
  let s := after sliding_counter h in
  estimate s t =
    if t <? period_end now then current s now + ceiling (previous s now * (period_end now - t)) W
    else if t <? period_end now + W then ceiling (current s now * (period_end now + W - t)) W
    else 0.
Proof.
  intros h now t H Hl Ht s. unfold estimate.
  destruct (counters_are_periods h now H Hl) as [N1 N2].
  destruct (counters_are_periods h t H ltac:(lia)) as [T1 T2].
  subst s. rewrite N1, N2, T1, T2. unfold period_end.
  pose proof (period_mono W window_positive _ _ Hl). pose proof (period_mono W window_positive _ _ Ht).
  pose proof (floor_lt t W (now / W + 1) window_positive).
  pose proof (floor_lt t W (now / W + 2) window_positive).
  destruct (Z.ltb_spec t ((now / W + 1) * W)).
  - replace (t / W) with (now / W) by lia. reflexivity.
  - rewrite (before_the_period h (t / W)) by (assumption || lia).
    destruct (Z.ltb_spec t ((now / W + 1) * W + W)).
    + replace (t / W) with (now / W + 1) by lia. replace (now / W + 1 - 1) with (now / W) by lia.
      rewrite Z.add_0_l. f_equal. f_equal. lia.
    + rewrite (before_the_period h (t / W - 1)) by (assumption || lia). reflexivity.
Qed.

Theorem sliding_counter_wait : exact_wait sliding_counter.
Proof.
  intros h now c t H Hl Hc Ht. cbn [wait free capacity sliding_counter] in *.
  pose proof (estimate_later h now t H Hl Ht) as T.
  pose proof (estimate_later h now now H Hl ltac:(lia)) as N.
  destruct (counters_are_periods h now H Hl) as [E1 E2].
  pose proof (units_nonneg _ (of_period (now / W)) h H).
  pose proof (units_nonneg _ (of_period (now / W - 1)) h H).
  pose proof (before_the_end now).
  set (s := after sliding_counter h) in *. cbn zeta in T, N.
  set (k := current s now) in *. set (p := previous s now) in *. set (e := period_end now) in *.
  replace (now <? e) with true in N by (symmetry; lia).
  assert (F : c <= Z.max 0 (L - estimate s t) <-> estimate s t <= L - c) by lia. rewrite F. clear F.
  (* In the next period, the current units weigh at most what they weigh now. *)
  assert (K : forall u, e <= u -> ceiling (k * (e + W - u)) W <= k).
  { intros u Hu. apply ceiling_le; [assumption|]. nia. }
  destruct (Z.ltb_spec (L - c - k) 0) as [R|R].
  - pose proof (floor_lt ((L - c) * W) k W ltac:(lia)). pose proof (Z.div_pos ((L - c) * W) k).
    split; [nia|]. rewrite T. clear T.
    destruct (Z.ltb_spec t e) as [|He].
    + pose proof (ceiling_nonneg (p * (e - t)) W window_positive ltac:(nia)). nia.
    + destruct (Z.ltb_spec t (e + W)); [|nia].
      rewrite ceiling_le by assumption. pose proof (floor_ge ((L - c) * W) k (e + W - t) ltac:(lia)).
      nia.
  - rewrite N. clear N. destruct (Z.leb_spec (k + ceiling (p * (e - now)) W) (L - c)) as [A|A].
    + split; [lia|]. rewrite T. clear T.
      destruct (Z.ltb_spec t e) as [|He]; [|specialize (K t He); destruct (t <? e + W); lia].
      assert (ceiling (p * (e - t)) W <= ceiling (p * (e - now)) W).
      { apply ceiling_le; [assumption|].
        pose proof (ceiling_ge (p * (e - now)) W window_positive). nia. }
      lia.
    + assert (B : (L - c - k) * W < p * (e - now)).
      { pose proof (ceiling_le (p * (e - now)) W (L - c - k) window_positive). lia. }
      assert (0 < p) by nia.
      pose proof (floor_lt ((L - c - k) * W) p (e - now) ltac:(lia)).
      pose proof (Z.div_pos ((L - c - k) * W) p ltac:(nia) ltac:(lia)).
      split; [nia|]. rewrite T. clear T.
      destruct (Z.ltb_spec t e) as [|He].
      * pose proof (ceiling_le (p * (e - t)) W (L - c - k) window_positive).
        pose proof (floor_ge ((L - c - k) * W) p (e - t) ltac:(lia)). nia.
      * specialize (K t He). destruct (t <? e + W); lia.
Qed.
End SlidingCounter.

Example the_bound_is_reached :
  let h := checks (sliding_counter 5 10) [(18, 4); (9, 5)] in
  units (within (18 - 10) 18) h = 2 * 5 - 1.
Proof. reflexivity. Qed.
