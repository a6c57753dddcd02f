(** Sliding counter under changes and refunds. The model of [src/algorithm/periods.rs] and
    [lua/periods.lua].

    [changing_counter_bound] is the promise: from a change on, no window has more than [2 L - 1] net units,
    whatever is refunded. *)

From Proofs Require Import Changes Carried FixedWindow Generations ChangesFixed.

Record pair := Pair {
  this : Z; before : Z; pair_window : Z; pair_last : Z; old_pairs : carried; pair_began : Z
}.

Definition falling (end_ w : Z) : ramp := Ramp end_ (end_ + w).

(** The two counters at a time. *)
Definition two (q : quota) (s : pair) (now : Z) : Z * Z :=
  let e := next_edge now (window q) in
  let last := next_edge (pair_last s) (window q) in
  if pair_window s =? window q then
    if e =? last then (this s, before s) else if e =? last + window q then (0, this s) else (0, 0)
  else (0, 0).

(** The estimate at the last charge. Its units leave together, as if all had been charged at that time. *)
Definition pairs_into (q : quota) (s : pair) : carried :=
  if pair_window s =? window q then old_pairs s
  else
    let last := pair_last s in
    let end_ := next_edge last (pair_window s) in
    Carried
      (this s + ceiling (before s * (end_ - last)) (pair_window s) + weigh last (old_pairs s))
      (earlier (falling end_ (pair_window s)) (falling (next_edge last (window q)) (window q))).

Definition counter_used (q : quota) (s : pair) (now t : Z) : Z :=
  let e := next_edge now (window q) in
  let (k, p) := two q s now in
  weight (Ramp (e - window q) e) p t + weight (Ramp e (e + window q)) k t
    + weigh t (pairs_into q s).

(** The estimate of both counters, without what is carried. *)
Definition estimated (q : quota) (s : pair) (now : Z) : Z :=
  let (k, p) := two q s now in k + ceiling (p * (next_edge now (window q) - now)) (window q).

Definition counter_charge (q : quota) (s : pair) (now c : Z) : pair * mark :=
  let (k, p) := two q s now in
  let g := begins (pair_window s =? window q) (pair_began s) now in
  (Pair (k + c) p (window q) now (pairs_into q s) g, mark_at g now (window q)).

Definition counter_wait (q : quota) (s : pair) (now c : Z) : Z :=
  let target := limit q - c in
  let w := window q in
  let e := next_edge now w in
  let (k, p) := two q s now in
  if weigh now (pairs_into q s) =? 0 then
    if target <? k then e + w - target * w / k - now
    else if estimated q s now <=? target then 0
    else e - (target - k) * w / p - now
  else first_time now (Z.max (zero (rule (pairs_into q s))) (e + w)) target (counter_used q s now) - now.

(** A charge from before a change of the window gives back nothing. *)
Definition counter_refund (q : quota) (s : pair) (now : Z) (r : receipt) (u : Z) : pair * Z :=
  let '(start, _, _) := left_mark r in
  let w := window (charged_under r) in
  if (window q =? w) && (now <? start + w + w) then
    if is_counted (pair_window s) (pair_last s) (pair_began s) 0 r then
      let k := Z.max 0 (Z.min u (this s)) in
      (Pair (this s - k) (before s) (pair_window s) (pair_last s) (old_pairs s) (pair_began s), k)
    else if is_counted (pair_window s) (pair_last s) (pair_began s) 1 r then
      let k := Z.max 0 (Z.min u (before s)) in
      (Pair (this s) (before s - k) (pair_window s) (pair_last s) (old_pairs s) (pair_began s), k)
    else (s, 0)
  else (s, 0).

Definition changing_counter : limiter := {|
  kept := pair;
  unused := Pair 0 0 0 0 nothing 0;
  most_free := limit;
  free_under q s now := Z.max 0 (limit q - (estimated q s now + weigh now (pairs_into q s)));
  charge_under := counter_charge;
  wait_under := counter_wait;
  refund_under := counter_refund
|}.

(** Both counters hold at least what the charges that they have counted have kept. *)
Record pairs (now : Z) (s : pair) (l : list entry) : Prop := {
  carry_no_debts : no_debt (old_pairs s);
  this_nonneg : 0 <= this s;
  before_nonneg : 0 <= before s;
  pair_window_nonneg : 0 <= pair_window s;
  pair_is_past : 0 <= now /\ pair_last s <= now;
  pair_marks : marks (pair_window s) (pair_last s) (pair_began s) l;
  this_holds : mine (is_counted (pair_window s) (pair_last s) (pair_began s) 0) l <= this s;
  before_holds : mine (is_counted (pair_window s) (pair_last s) (pair_began s) 1) l <= before s
}.

Lemma pairs_into_is_no_debt : forall q s, no_debt (old_pairs s) -> 0 <= this s -> 0 <= before s ->
  0 <= pair_window s -> no_debt (pairs_into q s).
Proof.
  intros q s H Ht Hb Hw. unfold pairs_into. destruct (_ =? _); [assumption|].
  unfold no_debt. cbn. pose proof (weigh_nonneg (pair_last s) _ H).
  assert (0 <= ceiling (before s * (next_edge (pair_last s) (pair_window s) - pair_last s)) (pair_window s)).
  { destruct (Z.eq_dec (pair_window s) 0) as [->|N].
    - unfold ceiling. rewrite Zdiv_0_r. destruct (_ =? _); lia.
    - apply ceiling_nonneg; [lia|]. unfold next_edge.
      pose proof (floor_lt (pair_last s) (pair_window s) (pair_last s / pair_window s + 1) ltac:(lia)). nia. }
  lia.
Qed.

Lemma next_period_edge : forall a b w, 0 < w ->
  (next_edge a w =? next_edge b w + w) = (a / w =? b / w + 1).
Proof. intros. unfold next_edge. destruct (Z.eqb_spec (a / w) (b / w + 1)); nia. Qed.

Theorem a_counter_refunds_within : refunds_within changing_counter.
Proof.
  intros q s t [cq [[i m1] m2]] u s' k Hu. cbn. unfold counter_refund. cbn [left_mark charged_under].
  destruct (_ && _); [|intros E; inversion E; lia].
  intros E. match type of E with context [if ?b then _ else _] => destruct b end; [inversion E; lia|].
  match type of E with context [if ?b then _ else _] => destruct b end; inversion E; lia.
Qed.

Lemma two_nonneg : forall q s t k p, 0 <= this s -> 0 <= before s -> two q s t = (k, p) -> 0 <= k /\ 0 <= p.
Proof.
  intros q s t k p Ht Hb E. unfold two in E. destruct (_ =? window q); [|inversion E; lia].
  destruct (_ =? next_edge (pair_last s) _); [inversion E; lia|]. destruct (_ =? _); inversion E; lia.
Qed.

(** The units that a charge finds counted are the units of the charges that it leaves counted. *)
Lemma two_hold : forall q s l now t k p, valid_quota q -> pairs now s l -> holds_net l -> now <= t ->
  two q s t = (k, p) ->
  let g := begins (pair_window s =? window q) (pair_began s) t in
  mine (is_counted (window q) t g 0) l <= k /\ mine (is_counted (window q) t g 1) l <= p.
Proof.
  intros q s l now t k p Hq [_ Ht1 Hb _ [_ Hl] M Hs Hs'] N Ht E. cbn. pose proof Hq as (_ & Hw & _).
  pose proof (two_nonneg _ _ _ _ _ Ht1 Hb E) as [Kn Pn].
  unfold two in E. rewrite period_edge, next_period_edge in E by assumption.
  pose proof (Z.div_le_mono (pair_last s) t (window q) Hw ltac:(lia)) as D.
  set (g := begins (pair_window s =? window q) (pair_began s) t).
  assert (C : forall ago, 0 <= ago -> Forall (fun e => is_counted (window q) t g ago (from e) = true ->
    pair_window s = window q /\ t / window q - pair_last s / window q <= ago /\
    is_counted (pair_window s) (pair_last s) (pair_began s) (ago - (t / window q - pair_last s / window q))
      (from e) = true) l).
  { intros ago Ha. apply Forall_forall. intros e I C.
    exact (counted_before (pair_window s) (pair_last s) (pair_began s) l q t ago e Hq M I ltac:(lia) Ha C). }
  pose proof (C 0 ltac:(lia)) as C0. pose proof (C 1 ltac:(lia)) as C1. clear C.
  destruct (Z.eqb_spec (pair_window s) (window q)) as [Ew|Ew].
  2: { inversion E; subst k p. rewrite !mine_none; [lia| |].
       - revert C1. apply Forall_impl. intros e F A. destruct (F A). contradiction.
       - revert C0. apply Forall_impl. intros e F A. destruct (F A). contradiction. }
  destruct (Z.eqb_spec (t / window q) (pair_last s / window q)) as [Et|Et].
  { inversion E; subst k p. split; [etransitivity; [|exact Hs]|etransitivity; [|exact Hs']]; apply mine_le; try assumption.
    - revert C0. apply Forall_impl. intros e F A. destruct (F A) as (_ & _ & G). rewrite Et, Z.sub_diag in G. exact G.
    - revert C1. apply Forall_impl. intros e F A. destruct (F A) as (_ & _ & G). rewrite Et, Z.sub_diag in G. exact G. }
  destruct (Z.eqb_spec (t / window q) (pair_last s / window q + 1)) as [Et'|Et'].
  { inversion E; subst k p. split.
    - rewrite mine_none; [lia|]. revert C0. apply Forall_impl. intros e F A. destruct (F A) as (_ & G & _). lia.
    - etransitivity; [|exact Hs]. apply mine_le; [assumption|]. revert C1. apply Forall_impl. intros e F A.
      destruct (F A) as (_ & _ & G). replace (1 - _) with 0 in G by lia. exact G. }
  inversion E; subst k p. rewrite !mine_none; [lia| |].
  - revert C1. apply Forall_impl. intros e F A. destruct (F A) as (_ & G & _). lia.
  - revert C0. apply Forall_impl. intros e F A. destruct (F A) as (_ & G & _). lia.
Qed.

Lemma reached_pairs : forall s l now, reached changing_counter (Pair 0 0 0 0 nothing 0) 0 s l now ->
  pairs now s l.
Proof.
  intros s l now H.
  induction H as [|s l now q t c s' mk H IH Ht Hq Hc E
    |s newer e older now q t u s' k H IH Ht Hq He Hu E].
  - split; unfold no_debt; cbn; try lia. apply no_marks.
  - pose proof (sound_holds_net _ _ (reached_is_sound _ _ _ _ _ _ a_counter_refunds_within H)) as N.
    cbn in E. unfold counter_charge in E. destruct (two q s t) as [k p] eqn:Tw.
    pose proof (two_hold q s l now t k p Hq IH N Ht Tw) as [T1 T2].
    pose proof (two_nonneg _ _ _ _ _ (this_nonneg _ _ _ IH) (before_nonneg _ _ _ IH) Tw) as [Kn Pn].
    destruct IH as [I1 I2 I3 I3' I4 I5 _ _]. inversion E; subst s' mk. pose proof (proj1 (proj2 Hq)).
    assert (A : is_counted (window q) t (begins (pair_window s =? window q) (pair_began s) t) 1
      (Receipt q (mark_at (begins (pair_window s =? window q) (pair_began s) t) t (window q))) = false).
    { destruct Hq as (_ & Hw & _). unfold is_counted, mark_at, start_of. cbn [left_mark charged_under].
      replace (next_edge t (window q) =? _) with false by (symmetry; lia).
      rewrite andb_false_r. reflexivity. }
    split; cbn; try lia.
    + apply pairs_into_is_no_debt; assumption.
    + apply (marks_charged (pair_window s) (pair_last s)); [assumption|lia|lia|assumption].
    + match goal with |- context [if ?b then _ else _] => destruct b end; lia.
    + match goal with |- context [if ?b then _ else _] => replace b with false by (symmetry; exact A) end. lia.
  - destruct (a_counter_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E) as [K1 K2].
    destruct IH as [I1 I2 I2' Iw I3 I4 I5 I6].
    cbn in E. unfold counter_refund in E. destruct (left_mark (from e)) as [[i m1] m2] eqn:Em.
    pose proof (marks_refunded _ _ _ _ _ _ k I4) as M.
    pose proof (mine_less (is_counted (pair_window s) (pair_last s) (pair_began s) 0) newer e older k) as L.
    pose proof (mine_less (is_counted (pair_window s) (pair_last s) (pair_began s) 1) newer e older k) as L'.
    assert (X : is_counted (pair_window s) (pair_last s) (pair_began s) 0 (from e) = true ->
      is_counted (pair_window s) (pair_last s) (pair_began s) 1 (from e) = false \/ window (charged_under (from e)) = 0).
    { unfold is_counted. rewrite Em. intros X. apply andb_prop in X as [X _]. apply andb_prop in X as [_ X].
      apply Z.eqb_eq in X. destruct (Z.eq_dec (window (charged_under (from e))) 0) as [|Z0]; [right; assumption|left].
      replace (next_edge _ _ =? i + _ + 1 * _) with false by (symmetry; apply Z.eqb_neq; lia).
      rewrite andb_false_r. reflexivity. }
    assert (W0 : window (charged_under (from e)) <> 0).
    { pose proof (reached_is_sound _ _ _ _ _ _ a_counter_refunds_within H) as S.
      apply Forall_app in S as [_ S]. apply Forall_inv in S. destruct S as (_ & _ & _ & S & _).
      unfold entry_quota in S. lia. }
    destruct (_ && _).
    2: { inversion E; subst s' k. destruct (is_counted _ _ _ 0 (from e)), (is_counted _ _ _ 1 (from e)); split; auto; lia. }
    destruct (is_counted (pair_window s) (pair_last s) (pair_began s) 0 (from e)) eqn:C.
    + destruct (X eq_refl) as [C'|]; [|contradiction]. rewrite C' in L'.
      inversion E; subst s' k. split; cbn; auto; lia.
    + destruct (is_counted (pair_window s) (pair_last s) (pair_began s) 1 (from e)) eqn:C';
        inversion E; subst s' k; split; cbn; auto; lia.
Qed.

(** A charge finds at least what the newest charges of its quota have kept in its period, and in the one
    before. *)
Lemma two_hold_run : forall q s l now t n k p, valid_quota q -> pairs now s l -> holds_net l -> now <= t ->
  all_under q (firstn n l) -> two q s t = (k, p) ->
  nets (of_period (window q) (t / window q)) (firstn n l) <= k /\
  nets (of_period (window q) (t / window q - 1)) (firstn n l) <= p.
Proof.
  intros q s l now t n k p Hq [_ Ht1 Hb _ [_ Hl] M Hs Hs'] N Ht A E. pose proof Hq as (_ & Hw & _).
  pose proof (two_nonneg _ _ _ _ _ Ht1 Hb E) as [Kn Pn].
  assert (G : firstn n l = [] \/ firstn n l <> []) by (destruct (firstn n l); [left|right]; congruence).
  destruct G as [->|G]; [cbn; lia|].
  pose proof (fun p => run_is_counted _ _ _ _ n (window q) p Hw M (all_under_windows q n l A) G) as R.
  destruct (R 0) as [Ew _]. rewrite Ew in *.
  unfold two in E. rewrite period_edge, next_period_edge, Ew, Z.eqb_refl in E by assumption.
  pose proof (Z.div_le_mono (pair_last s) t (window q) Hw ltac:(lia)) as D.
  destruct (Z.eqb_spec (t / window q) (pair_last s / window q)) as [Et|Et].
  { inversion E; subst k p. rewrite Et. split.
    - destruct (R (pair_last s / window q)) as [_ R']. rewrite Z.sub_diag in R'.
      etransitivity; [|exact Hs]. apply nets_mine; assumption.
    - destruct (R (pair_last s / window q - 1)) as [_ R'].
      replace (pair_last s / window q - (pair_last s / window q - 1)) with 1 in R' by lia.
      etransitivity; [|exact Hs']. apply nets_mine; assumption. }
  rewrite (none_after_the_last _ _ _ _ n _ (t / window q) Hw M) by lia.
  destruct (Z.eqb_spec (t / window q) (pair_last s / window q + 1)) as [Et'|Et'].
  - inversion E; subst k p. split; [lia|].
    replace (t / window q - 1) with (pair_last s / window q) by lia.
    destruct (R (pair_last s / window q)) as [_ R']. rewrite Z.sub_diag in R'.
    etransitivity; [|exact Hs]. apply nets_mine; assumption.
  - rewrite (none_after_the_last _ _ _ _ n _ (t / window q - 1) Hw M) by lia. lia.
Qed.

(** Two neighbouring periods: if the older one has a unit, the newer one has less than the limit. *)
Lemma two_changed_periods : forall q s l now p n, valid_quota q ->
  reached changing_counter (Pair 0 0 0 0 nothing 0) 0 s l now -> all_under q (firstn n l) ->
  nets (of_period (window q) p) (firstn n l) <= limit q /\
  (0 < nets (of_period (window q) (p - 1)) (firstn n l) ->
   nets (of_period (window q) p) (firstn n l) <= limit q - 1).
Proof.
  intros q s l now p n Hq H. pose proof Hq as (HL & Hw & _). revert n.
  induction H as [|s l now q' t c s' mk H IH Ht Hq' Hc E
    |s newer e older now q' t u s' k H IH Ht Hq' He Hu E]; intros n A.
  - destruct n; cbn; lia.
  - destruct n as [|n]; cbn in A |- *; [lia|].
    destruct (all_under_head _ _ _ A) as [Qe A']. cbn in Qe. subst q'. cbn [at_time net].
    pose proof (reached_pairs s l now H) as T.
    pose proof (reached_is_sound _ _ _ _ _ _ a_counter_refunds_within H) as S.
    pose proof (sound_holds_net _ _ S) as N.
    cbn in Hc. unfold estimated in Hc. destruct (two q s t) as [k pr] eqn:Tw.
    pose proof (two_hold_run q s l now t n k pr Hq T N Ht A' Tw) as [T3 T4].
    pose proof (two_nonneg _ _ _ _ _ (this_nonneg _ _ _ T) (before_nonneg _ _ _ T) Tw) as [T1 T2].
    pose proof (weigh_nonneg t _ (pairs_into_is_no_debt q s (carry_no_debts _ _ _ T)
      (this_nonneg _ _ _ T) (before_nonneg _ _ _ T) (pair_window_nonneg _ _ _ T))).
    assert (Hp : 0 < next_edge t (window q) - t).
    { unfold next_edge. pose proof (floor_lt t (window q) (t / window q + 1) Hw). lia. }
    pose proof (ceiling_nonneg (pr * (next_edge t (window q) - t)) (window q) Hw ltac:(nia)).
    destruct (IH n A') as [I1 I2]. unfold of_period at 1 3 5.
    destruct (Z.eqb_spec (t / window q) p) as [<-|Np].
    + replace (t / window q =? t / window q - 1) with false by (symmetry; lia).
      split; [lia|]. intros G.
      pose proof (ceiling_pos (pr * (next_edge t (window q) - t)) (window q) Hw ltac:(nia)). lia.
    + destruct (Z.eqb_spec (t / window q) (p - 1)) as [N'|N']; [|lia].
      rewrite (none_in_later_periods _ p t);
        [lia|assumption|exact (sound_firstn _ n _ (sound_later now t l Ht S))|lia].
  - destruct (a_counter_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E).
    pose proof (firstn_all_under q n newer e older k A) as A'.
    destruct (IH n A') as [I1 I2].
    pose proof (firstn_less (of_period (window q) p) n newer e older k ltac:(lia)).
    pose proof (firstn_less (of_period (window q) (p - 1)) n newer e older k ltac:(lia)). lia.
Qed.

Theorem changing_counter_bound : forall q s l now n x, valid_quota q ->
  reached changing_counter (Pair 0 0 0 0 nothing 0) 0 s l now -> all_under q (firstn n l) ->
  nets (within (x - window q) x) (firstn n l) <= 2 * limit q - 1.
Proof.
  intros q s l now n x Hq H A. pose proof Hq as (HL & Hw & _).
  pose proof (sound_firstn _ n _ (reached_is_sound _ _ _ _ _ _ a_counter_refunds_within H)) as S.
  pose proof (nets_cover _ _ _ _ _ S (window_meets_two_periods (window q) Hw x)).
  destruct (two_changed_periods q s l now (x / window q) n Hq H A).
  destruct (two_changed_periods q s l now (x / window q - 1) n Hq H A).
  pose proof (nets_nonneg (of_period (window q) (x / window q - 1)) _ _ S). lia.
Qed.

(** Every state that charges and refunds lead to is sound. *)
Lemma reached_counter_is_sound : forall s l now,
  reached changing_counter (Pair 0 0 0 0 nothing 0) 0 s l now ->
  no_debt (old_pairs s) /\ 0 <= this s /\ 0 <= before s /\ 0 <= pair_window s.
Proof. intros s l now H. destruct (reached_pairs s l now H). auto. Qed.
