(** Fixed window under changes and refunds. The model of [src/algorithm/periods.rs] and
    [lua/periods.lua].

    [changing_window_bound] is the promise: from a change on, no window has more than [2 L] net units,
    whatever is refunded. *)

From Proofs Require Import Changes Carried FixedWindow Generations.

Record periods := Periods {
  tally : Z; tally_window : Z; tally_last : Z; old_units : carried; began : Z
}.

Definition step (end_ : Z) : ramp := Ramp end_ end_.

(** The count of the period of a time, and the units that are carried into it. *)
Definition tallied (q : quota) (s : periods) (now : Z) : Z :=
  if (tally_window s =? window q) && (next_edge now (window q) =? next_edge (tally_last s) (window q))
  then tally s else 0.

(** All units that counted at the last charge leave together. *)
Definition carried_into (q : quota) (s : periods) : carried :=
  if tally_window s =? window q then old_units s
  else Carried (tally s + weigh (tally_last s) (old_units s))
    (earlier (step (next_edge (tally_last s) (tally_window s))) (step (next_edge (tally_last s) (window q)))).

Definition fixed_used (q : quota) (s : periods) (now t : Z) : Z :=
  (if t <? next_edge now (window q) then tallied q s now else 0) + weigh t (carried_into q s).

Definition fixed_charge (q : quota) (s : periods) (now c : Z) : periods * mark :=
  let g := begins (tally_window s =? window q) (began s) now in
  (Periods (tallied q s now + c) (window q) now (carried_into q s) g,
   mark_at g now (window q)).

Definition fixed_wait (q : quota) (s : periods) (now c : Z) : Z :=
  let target := limit q - c in
  if fixed_used q s now now <=? target then 0
  else first_time now (Z.max (next_edge now (window q)) (zero (rule (carried_into q s)))) target
    (fixed_used q s now) - now.

(** A charge from before a change of the window gives back nothing. *)
Definition fixed_refund (q : quota) (s : periods) (now : Z) (r : receipt) (u : Z) : periods * Z :=
  let '(start, _, _) := left_mark r in
  let w := window (charged_under r) in
  if is_counted (tally_window s) (tally_last s) (began s) 0 r && (window q =? w) &&
     (next_edge now w =? start + w)
  then
    let k := Z.max 0 (Z.min u (tally s)) in
    (Periods (tally s - k) (tally_window s) (tally_last s) (old_units s) (began s), k)
  else (s, 0).

Definition changing_window : limiter := {|
  kept := periods;
  unused := Periods 0 0 0 nothing 0;
  most_free := limit;
  free_under q s now := Z.max 0 (limit q - fixed_used q s now now);
  charge_under := fixed_charge;
  wait_under := fixed_wait;
  refund_under := fixed_refund
|}.

Lemma period_edge : forall a b w, 0 < w -> (next_edge a w =? next_edge b w) = (a / w =? b / w).
Proof. intros. unfold next_edge. destruct (Z.eqb_spec (a / w) (b / w)); nia. Qed.

Lemma carried_into_is_no_debt : forall q s, no_debt (old_units s) -> 0 <= tally s ->
  no_debt (carried_into q s).
Proof.
  intros q s H Hn. unfold carried_into. destruct (_ =? _); [assumption|].
  unfold no_debt. cbn. pose proof (weigh_nonneg (tally_last s) _ H). lia.
Qed.

Theorem a_window_refunds_within : refunds_within changing_window.
Proof.
  intros q s t [cq [[i m1] m2]] u s' k Hu. cbn. unfold fixed_refund. cbn.
  destruct (_ && _); intros E; inversion E; lia.
Qed.

(** The counter holds at least what the charges that it has counted have kept. *)
Record tallies (now : Z) (s : periods) (l : list entry) : Prop := {
  carry_no_debt : no_debt (old_units s);
  tally_nonneg : 0 <= tally s;
  last_is_past : 0 <= now /\ tally_last s <= now;
  tally_marks : marks (tally_window s) (tally_last s) (began s) l;
  tally_holds : mine (is_counted (tally_window s) (tally_last s) (began s) 0) l <= tally s
}.

Lemma tallied_nonneg : forall q s t, 0 <= tally s -> 0 <= tallied q s t.
Proof. intros. unfold tallied. destruct (_ && _); lia. Qed.

(** The units that a charge finds counted are the units of the charges that it leaves counted. *)
Lemma tallied_holds : forall q s l now t, valid_quota q -> tallies now s l -> holds_net l -> now <= t ->
  mine (is_counted (window q) t (begins (tally_window s =? window q) (began s) t) 0) l <= tallied q s t.
Proof.
  intros q s l now t Hq [_ Hn [_ Hl] M Hs] N Ht. pose proof Hq as (_ & Hw & _).
  unfold tallied. rewrite period_edge by assumption.
  destruct ((tally_window s =? window q) && (t / window q =? tally_last s / window q)) eqn:B.
  - apply andb_prop in B as [B1 B2]. apply Z.eqb_eq in B2.
    etransitivity; [|exact Hs]. apply mine_le; [assumption|]. apply Forall_forall. intros e I C.
    destruct (counted_before (tally_window s) (tally_last s) (began s) l q t 0 e Hq M I ltac:(lia) ltac:(lia) C) as (_ & _ & C').
    rewrite B2, Z.sub_diag in C'. exact C'.
  - rewrite mine_none; [lia|]. apply Forall_forall. intros e I C.
    destruct (counted_before (tally_window s) (tally_last s) (began s) l q t 0 e Hq M I ltac:(lia) ltac:(lia) C) as (E & D & _).
    pose proof (Z.div_le_mono (tally_last s) t (window q) Hw ltac:(lia)).
    rewrite E, Z.eqb_refl in B. cbn in B. lia.
Qed.

Lemma reached_tallies : forall s l now, reached changing_window (Periods 0 0 0 nothing 0) 0 s l now ->
  tallies now s l.
Proof.
  intros s l now H.
  induction H as [|s l now q t c s' mk H IH Ht Hq Hc E
    |s newer e older now q t u s' k H IH Ht Hq He Hu E].
  - split; unfold no_debt; cbn; try lia. apply no_marks.
  - pose proof (sound_holds_net _ _ (reached_is_sound _ _ _ _ _ _ a_window_refunds_within H)) as N.
    pose proof (tallied_holds q s l now t Hq IH N Ht) as T.
    pose proof (tallied_nonneg q s t (tally_nonneg _ _ _ IH)).
    destruct IH as [I1 I2 I3 I4 _]. cbn in E. unfold fixed_charge in E. inversion E; subst s' mk.
    split; cbn; try lia.
    + apply carried_into_is_no_debt; assumption.
    + apply (marks_charged (tally_window s) (tally_last s)); [assumption|lia|lia|assumption].
    + match goal with |- context [if ?b then _ else _] => destruct b end; lia.
  - destruct (a_window_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E) as [K1 K2].
    destruct IH as [I1 I2 I3 I4 I5].
    cbn in E. unfold fixed_refund in E. destruct (left_mark (from e)) as [[i m1] m2] eqn:Em.
    pose proof (marks_refunded _ _ _ _ _ _ k I4) as M.
    pose proof (mine_less (is_counted (tally_window s) (tally_last s) (began s) 0) newer e older k) as L.
    destruct (is_counted (tally_window s) (tally_last s) (began s) 0 (from e)) eqn:C; cbn [andb] in E.
    + destruct (_ && _); inversion E; subst s' k; split; cbn; auto; lia.
    + inversion E; subst s' k. split; auto; lia.
Qed.

(** A charge finds at least what the newest charges of its quota have kept in its period. *)
Lemma tallied_holds_run : forall q s l now t n, valid_quota q -> tallies now s l -> holds_net l ->
  now <= t -> all_under q (firstn n l) ->
  nets (of_period (window q) (t / window q)) (firstn n l) <= tallied q s t.
Proof.
  intros q s l now t n Hq [_ Hn [_ Hl] M Hs] N Ht A. pose proof Hq as (_ & Hw & _).
  assert (G : firstn n l = [] \/ firstn n l <> []) by (destruct (firstn n l); [left|right]; congruence).
  destruct G as [->|G]; [exact (tallied_nonneg q s t Hn)|].
  destruct (run_is_counted _ _ _ _ n (window q) (t / window q) Hw M (all_under_windows q n l A) G) as [Ew R].
  unfold tallied. rewrite period_edge, Ew, Z.eqb_refl by assumption. cbn [andb].
  destruct (Z.eqb_spec (t / window q) (tally_last s / window q)) as [Et|Et].
  - rewrite Et, Z.sub_diag in R. rewrite Et. etransitivity; [|exact Hs]. apply nets_mine; [assumption|].
    rewrite Ew in *. exact R.
  - pose proof (Z.div_le_mono (tally_last s) t (window q) Hw ltac:(lia)).
    rewrite (none_after_the_last _ _ _ _ _ _ _ Hw M); lia.
Qed.

Lemma none_in_later_periods : forall w p now l, 0 < w -> sound_ledger now l -> now / w < p ->
  nets (of_period w p) l = 0.
Proof.
  intros w p now l Hw S Hp. apply (nets_none _ now); [assumption|]. intros t Ht. unfold of_period.
  pose proof (Z.div_le_mono t now w Hw Ht). lia.
Qed.

Lemma fixed_used_now : forall q s t, valid_quota q ->
  fixed_used q s t t = tallied q s t + weigh t (carried_into q s).
Proof.
  intros q s t (_ & Hw & _). unfold fixed_used, next_edge.
  pose proof (floor_lt t (window q) (t / window q + 1) Hw).
  replace (t <? _) with true by (symmetry; lia). reflexivity.
Qed.

(** A period has at most the limit, of the newest charges of one quota. *)
Lemma a_changed_period : forall q s l now p n, valid_quota q ->
  reached changing_window (Periods 0 0 0 nothing 0) 0 s l now -> all_under q (firstn n l) ->
  nets (of_period (window q) p) (firstn n l) <= limit q.
Proof.
  intros q s l now p n Hq H. pose proof Hq as (HL & _ & _).
  refine (room_is_a_bound changing_window (Periods 0 0 0 nothing 0) 0 q (of_period (window q) p) (limit q)
    a_window_refunds_within ltac:(lia) _ s l now n H).
  clear s l now n H. intros s l now t c n H Ht _ Hc A P. pose proof (reached_tallies s l now H) as T.
  pose proof (sound_holds_net _ _ (reached_is_sound _ _ _ _ _ _ a_window_refunds_within H)) as N.
  pose proof (tallied_holds_run q s l now t n Hq T N Ht A) as R.
  unfold of_period in P. apply Z.eqb_eq in P. rewrite P in R.
  cbn in Hc. rewrite fixed_used_now in Hc by assumption.
  pose proof (weigh_nonneg t _ (carried_into_is_no_debt q s (carry_no_debt _ _ _ T) (tally_nonneg _ _ _ T))).
  lia.
Qed.

Theorem changing_window_bound : forall q s l now n x, valid_quota q ->
  reached changing_window (Periods 0 0 0 nothing 0) 0 s l now -> all_under q (firstn n l) ->
  nets (within (x - window q) x) (firstn n l) <= 2 * limit q.
Proof.
  intros q s l now n x Hq H A. pose proof Hq as (_ & Hw & _).
  pose proof (sound_firstn _ n _ (reached_is_sound _ _ _ _ _ _ a_window_refunds_within H)) as S.
  pose proof (nets_cover _ _ _ _ _ S (window_meets_two_periods (window q) Hw x)).
  pose proof (a_changed_period q s l now (x / window q) n Hq H A).
  pose proof (a_changed_period q s l now (x / window q - 1) n Hq H A). lia.
Qed.

(** Every state that charges and refunds lead to is sound. *)
Lemma reached_window_is_sound : forall s l now,
  reached changing_window (Periods 0 0 0 nothing 0) 0 s l now -> no_debt (old_units s) /\ 0 <= tally s.
Proof. intros s l now H. destruct (reached_tallies s l now H). auto. Qed.
