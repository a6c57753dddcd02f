(** The promises about changes and refunds, for all algorithms.

    - [published_bound_after_changes]: whatever was charged and refunded before, under any quotas, the
      charges from a change on keep the bound of the table, net of refunds.
    - [published_bound_whatever_is_refunded]: so they do if charges from before the change are refunded at any
      time. Token buckets are no part of it.
    - [published_bound_a_window_after_a_change]: once one new window has passed, all charges keep it.
    - [published_refunds]: a refund gives back at most what it is asked for, and nothing below zero.
    - [a_change_of_the_limit_keeps_spent_units]: units spent count in full under a new limit, so raising it
      denies nothing that was allowed, and lowering it acts at once. For buckets, whose debt the new rate
      pays, see [a_raised_bucket_denies_nothing].

    In a token bucket, the refunds from the change on are [in_turn], and of charges from the change on. *)

From Proofs Require Import Changes Ring ChangesRing ChangesBucket Carried Generations ChangesFixed ChangesCounter Published.

Definition changing_of (a : algorithm) : limiter :=
  match a with
  | Published.Log => changing_log
  | Buckets _ => changing_buckets
  | Counter => changing_counter
  | Published.Bucket _ => changing_bucket
  | Window => changing_window
  end.

(** The standing of a key under a quota. See [AllOrNothing.standing]. *)
Definition standing_under (m : limiter) (q : quota) (s : kept m) (now cost : Z) : Z * Z * Z * option Z :=
  let remaining := free_under m q s now in
  if most_free m q <=? remaining then (most_free m q, 0, 0, None)
  else (remaining, wait_under m q s now (remaining + 1), wait_under m q s now (most_free m q),
    if (remaining <? cost) && (cost <=? most_free m q) then Some (wait_under m q s now cost) else None).

(** A check of one charge: the state and the mark, if it is admitted. *)
Definition try_charge (m : limiter) (q : quota) (s : kept m) (now c : Z) : option (kept m * mark) :=
  if (0 <? c) && (c <=? free_under m q s now) then Some (charge_under m q s now c) else None.

(** The steps after a state: charges, and refunds of these charges. *)
Definition follows (a : algorithm) : kept (changing_of a) -> Z -> kept (changing_of a) -> list entry -> Z -> Prop :=
  match a with
  | Published.Bucket _ => in_turn
  | a => reached (changing_of a)
  end.

(** The column "most units" of the table. *)
Definition most_under (a : algorithm) (q : quota) : Z :=
  match a with
  | Published.Bucket _ => parameter q + limit q
  | a => most a (limit q)
  end.

Lemma reached_append : forall m u b s0 l0 t0 s l now, reached m u b s0 l0 t0 ->
  reached m s0 t0 s l now -> reached m u b s (l ++ l0) now.
Proof.
  intros m u b s0 l0 t0 s l now H0 H. induction H as [|s l now q t c s' mk H IH Ht Hq Hc E
    |s newer e older now q t r s' k H IH Ht Hq He Hu E].
  - exact H0.
  - cbn. apply (Charged m u b s (l ++ l0) now); assumption.
  - rewrite <- app_assoc in *. cbn in *. apply (Refunded m u b s newer e (older ++ l0) now q t r); assumption.
Qed.

Lemma firstn_of_append : forall (l l0 : list entry), firstn (length l) (l ++ l0) = l.
Proof. induction l as [|e l IH]; cbn; intros; [reflexivity|]. f_equal. apply IH. Qed.

(** The newest [n] charges are those from the change on. *)
Theorem published_bound_whatever_is_refunded : forall a q s l now n x, valid_quota q ->
  match a with Published.Bucket _ => False | _ => True end ->
  reached (changing_of a) (unused (changing_of a)) 0 s l now -> all_under q (firstn n l) ->
  nets (within (x - window q) x) (firstn n l) <= most_under a q.
Proof.
  intros a q s l now n x Hq Ha H A. destruct a as [|m| |burst|]; cbn in *.
  - exact (changing_ring_bound _ stamp_of_log_is_not_before q s l now n x Hq H A).
  - exact (changing_ring_bound _ stamp_of_buckets_is_not_before q s l now n x Hq H A).
  - exact (changing_counter_bound q s l now n x Hq H A).
  - destruct Ha.
  - exact (changing_window_bound q s l now n x Hq H A).
Qed.

Theorem published_bound_after_changes : forall a q s0 l0 t0 s l now x, valid_quota q ->
  reached (changing_of a) (unused (changing_of a)) 0 s0 l0 t0 ->
  follows a s0 t0 s l now -> all_under q l ->
  nets (within (x - window q) x) l <= most_under a q.
Proof.
  intros a q s0 l0 t0 s l now x Hq H0 H A.
  assert (G : match a with Published.Bucket _ => False | _ => True end ->
    reached (changing_of a) s0 t0 s l now -> nets (within (x - window q) x) l <= most_under a q).
  { intros Ha H'. rewrite <- (firstn_of_append l l0) in A |- *.
    exact (published_bound_whatever_is_refunded a q s _ now (length l) x Hq Ha
      (reached_append _ _ _ _ _ _ _ _ _ H0 H') A). }
  destruct a as [|n| |burst|]; try exact (G I H).
  destruct (reached_bucket_is_sound _ _ _ H0) as [S1 S2].
  exact (changing_bucket_bound q Hq s0 t0 s l now x S1 S2 H A).
Qed.

Theorem published_refunds : forall a, refunds_within (changing_of a).
Proof.
  intros [|n| |burst|]; cbn.
  - apply a_log_refunds_within.
  - apply a_log_refunds_within.
  - exact a_counter_refunds_within.
  - intros q s t r u s' k. apply a_bucket_refunds_within.
  - exact a_window_refunds_within.
Qed.

Theorem published_bound_a_window_after_a_change : forall a q s0 l0 t0 s l now x, valid_quota q ->
  reached (changing_of a) (unused (changing_of a)) 0 s0 l0 t0 ->
  follows a s0 t0 s l now -> all_under q l -> t0 + window q <= x ->
  nets (within (x - window q) x) (l ++ l0) <= most_under a q.
Proof.
  intros a q s0 l0 t0 s l now x Hq H0 H A Hx. rewrite nets_app.
  rewrite (nets_none _ t0 l0).
  - pose proof (published_bound_after_changes a q s0 l0 t0 s l now x Hq H0 H A). lia.
  - exact (reached_is_sound _ _ _ _ _ _ (published_refunds a) H0).
  - unfold within. intros. lia.
Qed.

(** The window of the last charge. *)
Definition window_of (a : algorithm) : kept (changing_of a) -> Z :=
  match a with
  | Published.Log | Buckets _ => last_window
  | Counter => pair_window
  | Published.Bucket _ => rate_window
  | Window => tally_window
  end.

Theorem a_change_of_the_limit_keeps_spent_units : forall a q q' s t,
  match a with Published.Bucket _ => limit q' = limit q | _ => True end ->
  window q' = window q -> window_of a s = window q ->
  exists spent, free_under (changing_of a) q s t = Z.max 0 (most_free (changing_of a) q - spent) /\
    free_under (changing_of a) q' s t = Z.max 0 (most_free (changing_of a) q' - spent).
Proof.
  intros a q q' s t Hb Hw Hs. destruct a as [|n| |burst|]; cbn in *.
  - exists (sum (counting stamp_of_log q s t)). split; [reflexivity|]. do 3 f_equal.
    unfold counting, leaves. rewrite Hw, Hs, Z.ltb_irrefl. reflexivity.
  - exists (sum (counting stamp_of_buckets q s t)). split; [reflexivity|]. do 3 f_equal.
    unfold counting, leaves. rewrite Hw, Hs, Z.ltb_irrefl. reflexivity.
  - eexists. split; [reflexivity|]. do 2 f_equal. unfold estimated, two, pairs_into. rewrite Hw, Hs.
    reflexivity.
  - eexists. split; [reflexivity|]. do 3 f_equal. unfold judge, rate. rewrite Hw, Hb. reflexivity.
  - eexists. split; [reflexivity|]. do 2 f_equal. unfold fixed_used, tallied, carried_into.
    rewrite Hw, Hs. reflexivity.
Qed.

(** No refund takes a count below zero: never more is free than all. *)
Theorem never_more_is_free_than_all : forall a q s l now t, valid_quota q ->
  reached (changing_of a) (unused (changing_of a)) 0 s l now -> now <= t ->
  free_under (changing_of a) q s t <= most_free (changing_of a) q.
Proof.
  assert (G : forall stamp q s l now t, valid_quota q ->
    (forall q count t, valid_quota q -> t <= stamp q count t) ->
    reached (changing_ring stamp) (ChangesRing.Log [] 0 0 0) 0 s l now ->
    free_under (changing_ring stamp) q s t <= limit q).
  { intros stamp q s l now t Hq Hst H. pose proof Hq as (HL & _ & _).
    destruct (reached_holds_all stamp Hst s l now H) as [B _].
    pose proof (reached_is_sound _ _ _ _ _ _ (a_log_refunds_within stamp) H) as S. cbn.
    unfold counting.
    rewrite (sum_is_in_record l) by (apply forall_filter; exact (hold_the_ledger _ _ B)).
    pose proof (sum_of_nonneg (fun r => in_record (number r) l)
      (filter (fun r => t <? leaves stamp q s r) (records s))
      (fun r => in_record_nonneg (number r) now l S)). lia. }
  intros a q s l now t Hq H Ht. pose proof Hq as (HL & HW & HB). destruct a as [|n| |burst|]; cbn in H.
  - exact (G _ q s l now t Hq stamp_of_log_is_not_before H).
  - exact (G _ q s l now t Hq stamp_of_buckets_is_not_before H).
  - destruct (reached_counter_is_sound _ _ _ H) as (S1 & S2 & S3 & S4). cbn.
    pose proof (weigh_nonneg t _ (pairs_into_is_no_debt q s S1 S2 S3 S4)).
    unfold estimated. destruct (two q s t) as [k p] eqn:T.
    assert (0 <= k /\ 0 <= p).
    { unfold two in T. destruct (_ =? window q); [|inversion T; lia].
      destruct (_ =? next_edge (pair_last s) _); [inversion T; lia|]. destruct (_ =? _); inversion T; lia. }
    assert (0 < next_edge t (window q) - t).
    { unfold next_edge. pose proof (floor_lt t (window q) (t / window q + 1) HW). lia. }
    pose proof (ceiling_nonneg (p * (next_edge t (window q) - t)) (window q) HW ltac:(nia)). lia.
  - destruct (reached_bucket_is_sound _ _ _ H) as [S1 S2]. cbn.
    pose proof (judge_is_sound q s t Hq S1 ltac:(lia)) as J. destruct (rate q s) as [[rl rw] rc].
    destruct (judge q s t). cbn. lia.
  - destruct (reached_window_is_sound _ _ _ H) as [S1 S2]. cbn. rewrite fixed_used_now by assumption.
    pose proof (weigh_nonneg t _ (carried_into_is_no_debt q s S1 S2)).
    unfold tallied. destruct (_ && _); lia.
Qed.
