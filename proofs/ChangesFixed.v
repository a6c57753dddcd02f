(** Fixed window under changes and refunds. The model of [src/algorithm/fixed_window.rs] and
    [lua/fixed_window.lua].

    [changing_window_bound] is the promise: from a change on, no window has more than [2 L] net units. *)

From Proofs Require Import Changes Carried FixedWindow.

Record periods := Periods { tally : Z; tally_window : Z; tally_last : Z; old_units : list group }.

Definition step (end_ : Z) : ramp := Ramp end_ end_.

(** The count of the period of a time, and the units that are carried into it. *)
Definition tallied (q : quota) (s : periods) (now : Z) : Z :=
  if (tally_window s =? window q) && (next_edge now (window q) =? next_edge (tally_last s) (window q))
  then tally s else 0.

Definition carried_into (q : quota) (s : periods) (now : Z) : list group :=
  if tally_window s =? window q then old_units s
  else
    let later := step (next_edge (tally_last s) (window q)) in
    unexpired now (add_group (bound_by later (old_units s))
      (Group (tally s) (step (next_edge (tally_last s) (tally_window s))) later)).

Definition fixed_used (q : quota) (s : periods) (now t : Z) : Z :=
  (if t <? next_edge now (window q) then tallied q s now else 0) + weigh t (carried_into q s now).

Definition fixed_charge (q : quota) (s : periods) (now c : Z) : periods * mark :=
  (Periods (tallied q s now + c) (window q) now (unexpired now (carried_into q s now)),
   (next_edge now (window q) - window q, 0, 0)).

Definition fixed_wait (q : quota) (s : periods) (now c : Z) : Z :=
  let target := limit q - c in
  if fixed_used q s now now <=? target then 0
  else match carried_into q s now with
  | [] => next_edge now (window q) - now
  | gs => first_time now (Z.max (next_edge now (window q)) (last_end gs)) target (fixed_used q s now) - now
  end.

Definition fixed_refund (q : quota) (s : periods) (now : Z) (r : receipt) (u : Z) : periods * Z :=
  let '(start, _, _) := left_mark r in
  let w := window (charged_under r) in
  let end_ := start + w in
  let is_current := (tally_window s =? w) && (next_edge (tally_last s) w =? end_) in
  if counts (step end_) now (carried_into q s now) ||
     (is_current && (w =? window q) && (next_edge now (window q) =? end_))
  then
    if is_current && (0 <? tally s) then
      let k := Z.max 0 (Z.min u (tally s)) in
      (Periods (tally s - k) (tally_window s) (tally_last s) (old_units s), k)
    else
      let (gs, k) := take_from (step end_) now u (old_units s) in
      (Periods (tally s) (tally_window s) (tally_last s) gs, k)
  else (s, 0).

Definition changing_window : limiter := {|
  kept := periods;
  unused := Periods 0 0 0 [];
  most_free := limit;
  free_under q s now := Z.max 0 (limit q - fixed_used q s now now);
  charge_under := fixed_charge;
  wait_under := fixed_wait;
  refund_under := fixed_refund
|}.

Lemma period_edge : forall a b w, 0 < w -> (next_edge a w =? next_edge b w) = (a / w =? b / w).
Proof. intros. unfold next_edge. destruct (Z.eqb_spec (a / w) (b / w)); nia. Qed.

Lemma carried_into_is_no_debt : forall q s now, no_debt (old_units s) -> 0 <= tally s ->
  no_debt (carried_into q s now).
Proof.
  intros. unfold carried_into. destruct (_ =? _); [assumption|].
  apply no_debt_filter, no_debt_add; [apply no_debt_bound; assumption|assumption].
Qed.

Theorem a_window_refunds_within : refunds_within changing_window.
Proof.
  intros q s t [cq [[i m1] m2]] u s' k Hu. cbn. unfold fixed_refund. cbn.
  destruct (_ || _); [|intros E; inversion E; lia].
  destruct (_ && _); [intros E; inversion E; lia|].
  destruct (take_from _ _ _ _) as [gs k'] eqn:T. intros E. inversion E; subst.
  exact (take_from_within _ _ _ _ _ _ Hu T).
Qed.

(** The counter holds at least what the charges of its period have kept. A start is any state: whatever
    was charged before, under other quotas. *)
Record tallies (w now : Z) (s : periods) (l : list entry) : Prop := {
  carry_no_debt : no_debt (old_units s);
  tally_nonneg : 0 <= tally s;
  tally_period : l <> [] -> tally_window s = w /\ tally_last s <= now /\
    sound_ledger (tally_last s) l /\ nets (of_period w (tally_last s / w)) l <= tally s
}.

(** The mark of a charge is the start of its period. *)
Definition marked (e : entry) : Prop :=
  fst (fst (left_mark (from e))) = next_edge (at_time e) (window (entry_quota e)) - window (entry_quota e).

Lemma none_in_later_periods : forall w p now l, 0 < w -> sound_ledger now l -> now / w < p ->
  nets (of_period w p) l = 0.
Proof.
  intros w p now l Hw S Hp. apply (nets_none _ now); [assumption|]. intros t Ht. unfold of_period.
  pose proof (Z.div_le_mono t now w Hw Ht). lia.
Qed.

Lemma sound_nil : forall now, sound_ledger now [].
Proof. constructor. Qed.

Lemma tallied_holds : forall q s l now t, valid_quota q -> tallies (window q) now s l -> now <= t ->
  0 <= tallied q s t /\ nets (of_period (window q) (t / window q)) l <= tallied q s t.
Proof.
  intros q s l now t (_ & Hw & _) [_ Hn Hp] Ht. unfold tallied. rewrite period_edge by assumption.
  destruct l as [|e l]; [cbn; destruct (_ && _); lia|].
  destruct (Hp ltac:(discriminate)) as (Ew & Hl & S & Hs). rewrite Ew, Z.eqb_refl. cbn [andb].
  destruct (Z.eqb_spec (t / window q) (tally_last s / window q)) as [->|N]; [lia|].
  pose proof (Z.div_le_mono (tally_last s) t (window q) Hw ltac:(lia)).
  rewrite (none_in_later_periods _ _ (tally_last s)) by (assumption || lia). lia.
Qed.

Lemma reached_tallies : forall q start begin s l now, no_debt (old_units start) -> 0 <= tally start ->
  valid_quota q -> reached changing_window start begin s l now -> all_under q l ->
  tallies (window q) now s l /\ Forall marked l.
Proof.
  intros q start begin s l now Hd Hn Hq H. pose proof Hq as (_ & Hw & _).
  induction H as [|s l now q' t c s' mk H IH Ht Hq' Hc E
    |s newer e older now q' t u s' k H IH Ht Hq' He Hu E]; intros A.
  - split; [|constructor]. split; auto. congruence.
  - destruct (all_under_head _ _ _ A) as [<- A']. cbn in Hq, Hw |- *. destruct (IH A') as [T M].
    pose proof (tallied_holds q' s l now t Hq T Ht) as [T1 T2].
    pose proof (reached_is_sound _ _ _ _ _ _ a_window_refunds_within H) as S.
    cbn in E. unfold fixed_charge in E. inversion E; subst s' mk.
    split; [split; cbn|constructor; [reflexivity|assumption]].
    + apply no_debt_filter, carried_into_is_no_debt; destruct T; assumption.
    + lia.
    + intros _. unfold of_period at 1. cbn. rewrite Z.eqb_refl. repeat split; try lia.
      constructor; [cbn; intuition lia|]. exact (sound_later now t l Ht S).
  - pose proof (all_under_less _ _ _ _ _ A) as A'. destruct (IH A') as [T M].
    destruct (a_window_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E) as [K1 K2].
    assert (Me : marked e) by (apply Forall_app in M as [_ M]; exact (Forall_inv M)).
    assert (Qe : entry_quota e = q) by (apply Forall_app in A' as [_ A']; exact (Forall_inv A')).
    split; [|apply Forall_app in M as [M1 M2]; apply Forall_app; split;
      [assumption|constructor; [exact Me|exact (Forall_inv_tail M2)]]].
    destruct T as [T1 T2 T3]. destruct (T3 ltac:(destruct newer; discriminate)) as (Ew & Hl & S & Hs).
    pose proof (sound_less _ newer e older k ltac:(lia) S) as S'.
    cbn in E. unfold fixed_refund in E. unfold marked in Me. rewrite Qe in Me.
    unfold entry_quota in Qe. rewrite Qe in E. destruct (left_mark (from e)) as [[i m1] m2]. cbn in Me.
    assert (P : (next_edge (tally_last s) (window q) =? i + window q) = (at_time e / window q =? tally_last s / window q)).
    { subst i. replace (next_edge (at_time e) (window q) - window q + window q)
        with (next_edge (at_time e) (window q)) by lia. rewrite Z.eqb_sym. apply period_edge. assumption. }
    rewrite P, Ew, Z.eqb_refl in E. cbn [andb] in E. clear P.
    destruct (_ || _).
    2: { inversion E; subst s' k. split; auto. intros _. rewrite nets_less.
         destruct (of_period _ _ _); repeat split; auto; lia. }
    destruct (((at_time e / window q) =? (tally_last s / window q)) && (0 <? tally s)) eqn:C.
    + inversion E; subst s' k. apply andb_prop in C as [C1 C2]. split; cbn; auto; [lia|].
      intros _. rewrite nets_less. unfold of_period at 2. rewrite C1. repeat split; auto; lia.
    + destruct (take_from _ _ _ _) as [gs k'] eqn:Tk. inversion E; subst s' k'.
      split; cbn; auto; [exact (no_debt_take _ _ _ _ _ _ (proj1 Hu) Tk T1)|].
      intros _. rewrite nets_less. destruct (of_period _ _ _); repeat split; auto; lia.
Qed.

Lemma fixed_used_now : forall q s t, valid_quota q ->
  fixed_used q s t t = tallied q s t + weigh t (carried_into q s t).
Proof.
  intros q s t (_ & Hw & _). unfold fixed_used, next_edge.
  pose proof (floor_lt t (window q) (t / window q + 1) Hw).
  replace (t <? _) with true by (symmetry; lia). reflexivity.
Qed.

Lemma a_changed_period : forall q start begin s l now p, no_debt (old_units start) -> 0 <= tally start ->
  valid_quota q -> reached changing_window start begin s l now -> all_under q l ->
  nets (of_period (window q) p) l <= limit q.
Proof.
  intros q start begin s l now p Hd Hn Hq H. pose proof Hq as (HL & _ & _).
  induction H as [|s l now q' t c s' mk H IH Ht Hq' Hc E
    |s newer e older now q' t u s' k H IH Ht Hq' He Hu E]; intros A.
  - cbn. lia.
  - destruct (all_under_head _ _ _ A) as [<- A']. cbn in Hq, HL, IH |- *.
    destruct (reached_tallies q' start begin s l now Hd Hn Hq H A') as [T _].
    pose proof (tallied_holds q' s l now t Hq T Ht) as [T1 T2].
    cbn in Hc. rewrite fixed_used_now in Hc by assumption.
    pose proof (weigh_nonneg t _ (carried_into_is_no_debt q' s t (carry_no_debt _ _ _ _ T) (tally_nonneg _ _ _ _ T))).
    specialize (IH A'). unfold of_period at 1.
    destruct (Z.eqb_spec (t / window q') p) as [<-|]; lia.
  - destruct (a_window_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E).
    specialize (IH (all_under_less _ _ _ _ _ A)). rewrite nets_less. destruct (of_period _ _ _); lia.
Qed.

Theorem changing_window_bound : forall q start begin s l now x, no_debt (old_units start) ->
  0 <= tally start -> valid_quota q -> reached changing_window start begin s l now -> all_under q l ->
  nets (within (x - window q) x) l <= 2 * limit q.
Proof.
  intros q start begin s l now x Hd Hn Hq H A. pose proof Hq as (_ & Hw & _).
  pose proof (reached_is_sound _ _ _ _ _ _ a_window_refunds_within H) as S.
  pose proof (nets_cover _ _ _ _ _ S (window_meets_two_periods (window q) Hw x)).
  pose proof (a_changed_period q start begin s l now (x / window q) Hd Hn Hq H A).
  pose proof (a_changed_period q start begin s l now (x / window q - 1) Hd Hn Hq H A). lia.
Qed.

(** Every state that charges and refunds lead to is a start for what follows. *)
Lemma reached_window_is_sound : forall s l now,
  reached changing_window (Periods 0 0 0 []) 0 s l now -> no_debt (old_units s) /\ 0 <= tally s.
Proof.
  intros s l now H. induction H as [|s l now q t c s' mk H [IH1 IH2] Ht Hq Hc E
    |s newer e older now q t u s' k H [IH1 IH2] Ht Hq He Hu E].
  - cbn. split; [constructor|lia].
  - cbn in E. unfold fixed_charge in E. inversion E. cbn. split.
    + apply no_debt_filter, carried_into_is_no_debt; assumption.
    + unfold tallied. destruct (_ && _); lia.
  - cbn in E. unfold fixed_refund in E. destruct (left_mark (from e)) as [[i m1] m2].
    destruct (_ || _); [|inversion E; subst; auto].
    match type of E with (if ?b then _ else _) = _ => destruct b eqn:C end.
    + inversion E; cbn. split; [assumption|lia].
    + destruct (take_from _ _ _ _) as [gs k'] eqn:T. inversion E; cbn.
      split; [exact (no_debt_take _ _ _ _ _ _ (proj1 Hu) T IH1)|assumption].
Qed.
