(** Sliding counter under changes and refunds. The model of [src/algorithm/sliding_counter.rs] and
    [lua/sliding_counter.lua].

    [changing_counter_bound] is the promise: from a change on, no window has more than [2 L - 1] net units. *)

From Proofs Require Import Changes Carried FixedWindow ChangesFixed.

Record pair := Pair {
  this : Z; before : Z; pair_window : Z; pair_last : Z; old_pairs : list group
}.

Definition falling (end_ w : Z) : ramp := Ramp end_ (end_ + w).

(** The two counters at a time. *)
Definition two (q : quota) (s : pair) (now : Z) : Z * Z :=
  let e := next_edge now (window q) in
  let last := next_edge (pair_last s) (window q) in
  if pair_window s =? window q then
    if e =? last then (this s, before s) else if e =? last + window q then (0, this s) else (0, 0)
  else (0, 0).

Definition pairs_into (q : quota) (s : pair) (now : Z) : list group :=
  if pair_window s =? window q then old_pairs s
  else
    let w := window q in
    let later := falling (next_edge (pair_last s) w) w in
    let end_ := next_edge (pair_last s) (pair_window s) in
    let start := end_ - pair_window s in
    let later_before := falling (next_edge (Z.max 0 (start - 1)) w) w in
    unexpired now (add_group (add_group (bound_by later (old_pairs s))
      (Group (before s) (falling start (pair_window s)) later_before))
      (Group (this s) (falling end_ (pair_window s)) later)).

Definition counter_used (q : quota) (s : pair) (now t : Z) : Z :=
  let e := next_edge now (window q) in
  let (k, p) := two q s now in
  weight (Ramp (e - window q) e) p t + weight (Ramp e (e + window q)) k t
    + weigh t (pairs_into q s now).

(** The estimate of both counters, without what is carried. *)
Definition estimated (q : quota) (s : pair) (now : Z) : Z :=
  let (k, p) := two q s now in k + ceiling (p * (next_edge now (window q) - now)) (window q).

Definition counter_charge (q : quota) (s : pair) (now c : Z) : pair * mark :=
  let (k, p) := two q s now in
  (Pair (k + c) p (window q) now (unexpired now (pairs_into q s now)),
   (next_edge now (window q) - window q, 0, 0)).

Definition counter_wait (q : quota) (s : pair) (now c : Z) : Z :=
  let target := limit q - c in
  let w := window q in
  let e := next_edge now w in
  let (k, p) := two q s now in
  match pairs_into q s now with
  | [] =>
      if target <? k then e + w - target * w / k - now
      else if estimated q s now <=? target then 0
      else e - (target - k) * w / p - now
  | gs => first_time now (Z.max (last_end gs) (e + w)) target (counter_used q s now) - now
  end.

Definition counter_refund (q : quota) (s : pair) (now : Z) (r : receipt) (u : Z) : pair * Z :=
  let '(start, _, _) := left_mark r in
  let w := window (charged_under r) in
  let end_ := start + w in
  let own := falling end_ w in
  let last := next_edge (pair_last s) (pair_window s) in
  let is_this := (pair_window s =? w) && (end_ =? last) in
  let is_before := (pair_window s =? w) && (end_ + w =? last) in
  if counts own now (pairs_into q s now) ||
     ((is_this || is_before) && (window q =? w) && (now <? zero own))
  then
    if is_this && (0 <? this s) then
      let k := Z.max 0 (Z.min u (this s)) in
      (Pair (this s - k) (before s) (pair_window s) (pair_last s) (old_pairs s), k)
    else if is_before && (0 <? before s) then
      let k := Z.max 0 (Z.min u (before s)) in
      (Pair (this s) (before s - k) (pair_window s) (pair_last s) (old_pairs s), k)
    else
      let (gs, k) := take_from own now u (old_pairs s) in
      (Pair (this s) (before s) (pair_window s) (pair_last s) gs, k)
  else (s, 0).

Definition changing_counter : limiter := {|
  kept := pair;
  unused := Pair 0 0 0 0 [];
  most_free := limit;
  free_under q s now := Z.max 0 (limit q - (estimated q s now + weigh now (pairs_into q s now)));
  charge_under := counter_charge;
  wait_under := counter_wait;
  refund_under := counter_refund
|}.

(** Both counters hold at least what the charges of their periods have kept. A start is any state. *)
Record pairs (w now : Z) (s : pair) (l : list entry) : Prop := {
  carry_no_debts : no_debt (old_pairs s);
  this_nonneg : 0 <= this s;
  before_nonneg : 0 <= before s;
  both_periods : l <> [] -> pair_window s = w /\ pair_last s <= now /\
    sound_ledger (pair_last s) l /\ nets (of_period w (pair_last s / w)) l <= this s /\
    nets (of_period w (pair_last s / w - 1)) l <= before s
}.

Lemma pairs_into_is_no_debt : forall q s now, no_debt (old_pairs s) -> 0 <= this s -> 0 <= before s ->
  no_debt (pairs_into q s now).
Proof.
  intros. unfold pairs_into. destruct (_ =? _); [assumption|].
  apply no_debt_filter, no_debt_add; [|assumption].
  apply no_debt_add; [apply no_debt_bound; assumption|assumption].
Qed.

Lemma next_period_edge : forall a b w, 0 < w ->
  (next_edge a w =? next_edge b w + w) = (a / w =? b / w + 1).
Proof. intros. unfold next_edge. destruct (Z.eqb_spec (a / w) (b / w + 1)); nia. Qed.

Theorem a_counter_refunds_within : refunds_within changing_counter.
Proof.
  intros q s t [cq [[i m1] m2]] u s' k Hu. cbn. unfold counter_refund. cbn.
  destruct (_ || _); [|intros E; inversion E; lia].
  destruct (_ && (0 <? this s)); [intros E; inversion E; lia|].
  destruct (_ && (0 <? before s)); [intros E; inversion E; lia|].
  destruct (take_from _ _ _ _) as [gs k'] eqn:T. intros E. inversion E; subst.
  exact (take_from_within _ _ _ _ _ _ Hu T).
Qed.

Lemma two_hold : forall q s l now t k p, valid_quota q -> pairs (window q) now s l -> now <= t ->
  two q s t = (k, p) -> 0 <= k /\ 0 <= p /\
  nets (of_period (window q) (t / window q)) l <= k /\
  nets (of_period (window q) (t / window q - 1)) l <= p.
Proof.
  intros q s l now t k p (_ & Hw & _) [_ Ht1 Hb Hp] Ht. unfold two.
  rewrite period_edge, next_period_edge by assumption. intros E.
  assert (G : 0 <= k /\ 0 <= p).
  { destruct (_ =? window q); [|inversion E; lia]. destruct (_ =? _); [inversion E; lia|].
    destruct (_ =? _); inversion E; lia. }
  split; [apply G|]. split; [apply G|].
  destruct l as [|e l]; [cbn; lia|].
  destruct (Hp ltac:(discriminate)) as (Ew & Hl & S & Hs & Hs'). rewrite Ew, Z.eqb_refl in E.
  pose proof (Z.div_le_mono (pair_last s) t (window q) Hw ltac:(lia)).
  destruct (Z.eqb_spec (t / window q) (pair_last s / window q)) as [->|N]; [inversion E; subst; lia|].
  rewrite (none_in_later_periods _ (t / window q) (pair_last s)) by (assumption || lia).
  destruct (Z.eqb_spec (t / window q) (pair_last s / window q + 1)) as [->|N'].
  - inversion E; subst. replace (pair_last s / window q + 1 - 1) with (pair_last s / window q) by lia. lia.
  - rewrite (none_in_later_periods _ (t / window q - 1) (pair_last s)) by (assumption || lia). lia.
Qed.

Lemma reached_pairs : forall q start begin s l now, no_debt (old_pairs start) -> 0 <= this start ->
  0 <= before start -> valid_quota q -> reached changing_counter start begin s l now -> all_under q l ->
  pairs (window q) now s l /\ Forall marked l.
Proof.
  intros q start begin s l now Hd Hn Hb Hq H. pose proof Hq as (_ & Hw & _).
  induction H as [|s l now q' t c s' mk H IH Ht Hq' Hc E
    |s newer e older now q' t u s' k H IH Ht Hq' He Hu E]; intros A.
  - split; [|constructor]. split; auto. congruence.
  - destruct (all_under_head _ _ _ A) as [<- A']. cbn in Hq, Hw |- *. destruct (IH A') as [T M].
    cbn in E. unfold counter_charge in E. destruct (two q' s t) as [k p] eqn:Tw.
    pose proof (two_hold q' s l now t k p Hq T Ht Tw) as (T1 & T2 & T3 & T4).
    pose proof (reached_is_sound _ _ _ _ _ _ a_counter_refunds_within H) as S.
    inversion E; subst s' mk.
    split; [split; cbn|constructor; [reflexivity|assumption]].
    + apply no_debt_filter, pairs_into_is_no_debt; destruct T; assumption.
    + lia.
    + lia.
    + intros _. unfold of_period at 1 3. cbn. rewrite Z.eqb_refl.
      replace (t / window q' =? t / window q' - 1) with false by (symmetry; lia).
      repeat split; try lia. constructor; [cbn; intuition lia|]. exact (sound_later now t l Ht S).
  - pose proof (all_under_less _ _ _ _ _ A) as A'. destruct (IH A') as [T M].
    destruct (a_counter_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E) as [K1 K2].
    assert (Me : marked e) by (apply Forall_app in M as [_ M]; exact (Forall_inv M)).
    assert (Qe : entry_quota e = q) by (apply Forall_app in A' as [_ A']; exact (Forall_inv A')).
    split; [|apply Forall_app in M as [M1 M2]; apply Forall_app; split;
      [assumption|constructor; [exact Me|exact (Forall_inv_tail M2)]]].
    destruct T as [T1 T2 T2' T3].
    destruct (T3 ltac:(destruct newer; discriminate)) as (Ew & Hl & S & Hs & Hs').
    pose proof (sound_less _ newer e older k ltac:(lia) S) as S'.
    cbn in E. unfold counter_refund in E. unfold marked in Me. rewrite Qe in Me.
    unfold entry_quota in Qe. rewrite Qe in E. destruct (left_mark (from e)) as [[i m1] m2]. cbn in Me.
    assert (Ei : i + window q = next_edge (at_time e) (window q)) by lia.
    rewrite Ei, Ew, Z.eqb_refl, period_edge in E by assumption. cbn [andb] in E.
    rewrite (Z.eqb_sym (_ + _) (next_edge (pair_last s) _)), next_period_edge in E by assumption.
    match type of E with (if ?b then _ else _) = _ => destruct b end.
    2: { inversion E; subst s' k. split; auto. intros _. rewrite !nets_less.
         destruct (of_period _ _ _), (of_period _ (_ - 1) _); repeat split; auto; lia. }
    destruct (((at_time e / window q) =? (pair_last s / window q)) && (0 <? this s)) eqn:C.
    { inversion E; subst s' k. apply andb_prop in C as [C1 C2]. split; cbn; auto; [lia|].
      intros _. rewrite !nets_less. unfold of_period at 2 4. rewrite C1.
      replace (at_time e / window q =? pair_last s / window q - 1) with false by (symmetry; lia).
      repeat split; auto; lia. }
    destruct ((pair_last s / window q =? at_time e / window q + 1) && (0 <? before s)) eqn:C'.
    { inversion E; subst s' k. apply andb_prop in C' as [C1 C2]. split; cbn; auto; [lia|].
      intros _. rewrite !nets_less. unfold of_period at 2 4.
      replace (at_time e / window q =? pair_last s / window q) with false by (symmetry; lia).
      replace (at_time e / window q =? pair_last s / window q - 1) with true by (symmetry; lia).
      repeat split; auto; lia. }
    destruct (take_from _ _ _ _) as [gs k'] eqn:Tk. inversion E; subst s' k'.
    split; cbn; auto; [exact (no_debt_take _ _ _ _ _ _ (proj1 Hu) Tk T1)|].
    intros _. rewrite !nets_less.
    destruct (of_period _ _ _), (of_period _ (_ - 1) _); repeat split; auto; lia.
Qed.

(** Two neighbouring periods: if the older one has a unit, the newer one has less than the limit. *)
Lemma two_changed_periods : forall q start begin s l now p, no_debt (old_pairs start) -> 0 <= this start ->
  0 <= before start -> valid_quota q -> reached changing_counter start begin s l now -> all_under q l ->
  nets (of_period (window q) p) l <= limit q /\
  (0 < nets (of_period (window q) (p - 1)) l -> nets (of_period (window q) p) l <= limit q - 1).
Proof.
  intros q start begin s l now p Hd Hn Hb Hq H. pose proof Hq as (HL & Hw & _).
  induction H as [|s l now q' t c s' mk H IH Ht Hq' Hc E
    |s newer e older now q' t u s' k H IH Ht Hq' He Hu E]; intros A.
  - cbn. lia.
  - destruct (all_under_head _ _ _ A) as [<- A']. cbn in Hq, HL, Hw, IH |- *.
    destruct (reached_pairs q' start begin s l now Hd Hn Hb Hq H A') as [T _].
    pose proof (reached_is_sound _ _ _ _ _ _ a_counter_refunds_within H) as S.
    cbn in Hc. unfold estimated in Hc. destruct (two q' s t) as [k pr] eqn:Tw.
    pose proof (two_hold q' s l now t k pr Hq T Ht Tw) as (T1 & T2 & T3 & T4).
    pose proof (weigh_nonneg t _ (pairs_into_is_no_debt q' s t (carry_no_debts _ _ _ _ T)
      (this_nonneg _ _ _ _ T) (before_nonneg _ _ _ _ T))).
    assert (Hp : 0 < next_edge t (window q') - t).
    { unfold next_edge. pose proof (floor_lt t (window q') (t / window q' + 1) Hw). lia. }
    pose proof (ceiling_nonneg (pr * (next_edge t (window q') - t)) (window q') Hw ltac:(nia)).
    destruct (IH A') as [I1 I2]. unfold of_period at 1 3 5.
    destruct (Z.eqb_spec (t / window q') p) as [<-|N].
    + replace (t / window q' =? t / window q' - 1) with false by (symmetry; lia).
      split; [lia|]. intros G.
      pose proof (ceiling_pos (pr * (next_edge t (window q') - t)) (window q') Hw ltac:(nia)). lia.
    + destruct (Z.eqb_spec (t / window q') (p - 1)) as [N'|N']; [|lia].
      rewrite (none_in_later_periods _ p t) by (assumption || lia || exact (sound_later now t l Ht S)).
      lia.
  - destruct (a_counter_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E).
    destruct (IH (all_under_less _ _ _ _ _ A)) as [I1 I2]. rewrite !nets_less.
    destruct (of_period _ p _), (of_period _ (_ - 1) _); lia.
Qed.

Theorem changing_counter_bound : forall q start begin s l now x, no_debt (old_pairs start) ->
  0 <= this start -> 0 <= before start -> valid_quota q ->
  reached changing_counter start begin s l now -> all_under q l ->
  nets (within (x - window q) x) l <= 2 * limit q - 1.
Proof.
  intros q start begin s l now x Hd Hn Hb Hq H A. pose proof Hq as (HL & Hw & _).
  pose proof (reached_is_sound _ _ _ _ _ _ a_counter_refunds_within H) as S.
  pose proof (nets_cover _ _ _ _ _ S (window_meets_two_periods (window q) Hw x)).
  destruct (two_changed_periods q start begin s l now (x / window q) Hd Hn Hb Hq H A).
  destruct (two_changed_periods q start begin s l now (x / window q - 1) Hd Hn Hb Hq H A).
  pose proof (nets_nonneg (of_period (window q) (x / window q - 1)) _ _ S). lia.
Qed.

(** Every state that charges and refunds lead to is a start for what follows. *)
Lemma reached_counter_is_sound : forall s l now,
  reached changing_counter (Pair 0 0 0 0 []) 0 s l now ->
  no_debt (old_pairs s) /\ 0 <= this s /\ 0 <= before s.
Proof.
  intros s l now H. induction H as [|s l now q t c s' mk H (IH1 & IH2 & IH3) Ht Hq Hc E
    |s newer e older now q t u s' k H (IH1 & IH2 & IH3) Ht Hq He Hu E].
  - cbn. split; [constructor|lia].
  - cbn in E. unfold counter_charge in E. destruct (two q s t) as [a b] eqn:T. inversion E. cbn.
    split; [apply no_debt_filter, pairs_into_is_no_debt; assumption|].
    unfold two in T. destruct (_ =? window q); [|inversion T; lia].
    destruct (_ =? next_edge (pair_last s) _); [inversion T; lia|]. destruct (_ =? _); inversion T; lia.
  - cbn in E. unfold counter_refund in E. destruct (left_mark (from e)) as [[i m1] m2].
    match type of E with (if ?b then _ else _) = _ => destruct b end; [|inversion E; subst; auto].
    match type of E with (if ?b then _ else _) = _ => destruct b end;
      [inversion E; cbn; repeat split; auto; lia|].
    match type of E with (if ?b then _ else _) = _ => destruct b end;
      [inversion E; cbn; repeat split; auto; lia|].
    destruct (take_from _ _ _ _) as [gs k'] eqn:T. inversion E; cbn.
    split; [exact (no_debt_take _ _ _ _ _ _ (proj1 Hu) T IH1)|auto].
Qed.
