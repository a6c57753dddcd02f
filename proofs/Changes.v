(** Changes of a quota, and refunds: what Machine.v leaves out.

    A [limiter] is the model of a file in [src/algorithm] and of its twin in [lua/]. Each step has the
    quota of its time, so any quota may follow any other. A charge leaves a mark, and a refund needs it.

    A ledger lists the charges of a key, the newest first, each with the units that it has kept. A refund
    subtracts from the entry of its charge, so all sums of a ledger are net of refunds.

    [reached] is the promise's frame: every state and ledger that checks and refunds lead to, in the order
    of time. A charge was free when it was made. An entry is refunded at most once, for at most its units.

    The promises are in ChangesPublished.v. *)

From Proofs Require Export Machine Arithmetic.

(** [parameter] is the number of buckets, or the burst. *)
Record quota := Quota { limit : Z; window : Z; parameter : Z }.

Definition valid_quota (q : quota) : Prop := 0 < limit q /\ 0 < window q /\ 0 < parameter q.

Notation mark := (Z * Z * Z)%type.

(** The quota and the mark of a charge, which its refund needs. *)
Record receipt := Receipt { charged_under : quota; left_mark : mark }.

Record limiter := Limiter {
  kept : Type;
  unused : kept;
  most_free : quota -> Z;
  free_under : quota -> kept -> Z -> Z;
  charge_under : quota -> kept -> Z -> Z -> kept * mark;
  wait_under : quota -> kept -> Z -> Z -> Z;
  (** The state after a refund of up to some units, and how many they were. *)
  refund_under : quota -> kept -> Z -> receipt -> Z -> kept * Z
}.

(** An entry of a ledger. [held] says whether its charge can still be refunded. *)
Record entry := Entry { from : receipt; at_time : Z; net : Z; is_held : bool }.

Definition less (e : entry) (k : Z) : entry := Entry (from e) (at_time e) (net e - k) false.

(** States and ledgers that are reached from a state. *)
Inductive reached (m : limiter) (start : kept m) (begin : Z) : kept m -> list entry -> Z -> Prop :=
| Started : reached m start begin start [] begin
| Charged : forall s l now q t c s' mk,
    reached m start begin s l now -> now <= t -> valid_quota q ->
    0 < c <= free_under m q s t -> charge_under m q s t c = (s', mk) ->
    reached m start begin s' (Entry (Receipt q mk) t c true :: l) t
| Refunded : forall s newer e older now q t u s' k,
    reached m start begin s (newer ++ e :: older) now -> now <= t -> valid_quota q ->
    is_held e = true -> 0 <= u <= net e -> refund_under m q s t (from e) u = (s', k) ->
    reached m start begin s' (newer ++ less e k :: older) t.

(** The net units of the entries whose times a test accepts. *)
Fixpoint nets (accepts : Z -> bool) (l : list entry) : Z :=
  match l with
  | [] => 0
  | e :: older => (if accepts (at_time e) then net e else 0) + nets accepts older
  end.

Definition entry_quota (e : entry) : quota := charged_under (from e).

(** All entries are of one quota. *)
Definition all_under (q : quota) (l : list entry) : Prop := Forall (fun e => entry_quota e = q) l.

(** A refund gives back no more than it is asked for, and never less than nothing. *)
Definition refunds_within (m : limiter) : Prop :=
  forall q s t r u s' k, 0 <= u -> refund_under m q s t r u = (s', k) -> 0 <= k <= u.

(** Ledgers. *)

Lemma nets_app : forall a l1 l2, nets a (l1 ++ l2) = nets a l1 + nets a l2.
Proof. induction l1; cbn; intros; [lia|]. rewrite IHl1. lia. Qed.

Definition sound_ledger (now : Z) (l : list entry) : Prop :=
  Forall (fun e => at_time e <= now /\ 0 <= net e /\ valid_quota (entry_quota e)) l.

Lemma nets_nonneg : forall a now l, sound_ledger now l -> 0 <= nets a l.
Proof.
  intros a now l H. induction H as [|e l He _ IH]; cbn; [lia|]. destruct (a (at_time e)); lia.
Qed.

Lemma nets_mono : forall a b now l, sound_ledger now l ->
  (forall t, t <= now -> a t = true -> b t = true) -> nets a l <= nets b l.
Proof.
  intros a b now l H Hab. induction H as [|e l He _ IH]; cbn; [lia|].
  destruct He as (Ht & Hn & _).
  destruct (a (at_time e)) eqn:E; [rewrite (Hab _ Ht E)|destruct (b (at_time e))]; lia.
Qed.

Lemma nets_cover : forall a b d now l, sound_ledger now l ->
  (forall t, a t = true -> b t = true \/ d t = true) -> nets a l <= nets b l + nets d l.
Proof.
  intros a b d now l H Hab. induction H as [|e l He _ IH]; cbn; [lia|].
  destruct He as (Ht & Hn & _).
  destruct (a (at_time e)) eqn:E; [destruct (Hab _ E) as [E'|E']; rewrite E'|];
    [destruct (d _)|destruct (b _)|destruct (b _), (d _)]; lia.
Qed.

Lemma nets_none : forall a now l, sound_ledger now l -> (forall t, t <= now -> a t = false) ->
  nets a l = 0.
Proof.
  intros a now l H Ha. induction H as [|e l He _ IH]; cbn; [lia|]. rewrite Ha by apply He. lia.
Qed.

Lemma nets_less : forall a newer e older k,
  nets a (newer ++ less e k :: older) =
  nets a (newer ++ e :: older) - (if a (at_time e) then k else 0).
Proof. intros. rewrite !nets_app. cbn. destruct (a (at_time e)); lia. Qed.

Lemma sound_later : forall now t l, now <= t -> sound_ledger now l -> sound_ledger t l.
Proof. intros now t l H. apply Forall_impl. intros e He. intuition lia. Qed.

Lemma sound_less : forall now newer e older k, 0 <= k <= net e ->
  sound_ledger now (newer ++ e :: older) -> sound_ledger now (newer ++ less e k :: older).
Proof.
  unfold sound_ledger. intros now newer e older k Hk H. apply Forall_app in H as [H1 H2].
  inversion H2 as [|? ? He Ho]; subst. apply Forall_app. split; [assumption|].
  constructor; [|assumption]. cbn. intuition lia.
Qed.

Lemma reached_is_sound : forall m start begin s l now, refunds_within m ->
  reached m start begin s l now -> sound_ledger now l.
Proof.
  intros m start begin s l now W H. induction H as [|s l now q t c s' mk H IH Ht Hq Hc E
    |s newer e older now q t u s' k H IH Ht Hq He Hu E].
  - constructor.
  - constructor; [cbn; intuition lia|]. exact (sound_later now t l Ht IH).
  - destruct (W _ _ _ _ _ _ _ (proj1 Hu) E). apply sound_less; [lia|].
    exact (sound_later now t _ Ht IH).
Qed.

(** A refund and a later change keep what is said of all entries. *)
Lemma all_under_less : forall q newer e older k,
  all_under q (newer ++ less e k :: older) -> all_under q (newer ++ e :: older).
Proof.
  unfold all_under. intros q newer e older k H. apply Forall_app in H as [H1 H2].
  apply Forall_app. split; [assumption|]. constructor.
  - exact (Forall_inv H2).
  - exact (Forall_inv_tail H2).
Qed.

Lemma firstn_less : forall a n newer e older k, 0 <= k ->
  nets a (firstn n (newer ++ less e k :: older)) <= nets a (firstn n (newer ++ e :: older)).
Proof.
  intros a n newer e older k Hk. revert n. induction newer as [|e' newer IH]; intros [|n]; cbn; [lia| |lia|].
  - destruct (a (at_time e)); lia.
  - specialize (IH n). lia.
Qed.

Lemma firstn_all_under : forall q n newer e older k,
  all_under q (firstn n (newer ++ less e k :: older)) -> all_under q (firstn n (newer ++ e :: older)).
Proof.
  unfold all_under. intros q n newer e older k. revert n.
  induction newer as [|e' newer IH]; intros [|n]; cbn; intros H; try constructor.
  - exact (Forall_inv H).
  - exact (Forall_inv_tail H).
  - exact (Forall_inv H).
  - apply IH. exact (Forall_inv_tail H).
Qed.

(** If each charge finds room beside the newest charges of its quota, they keep the bound, whatever is
    refunded, and whatever was charged under other quotas before. *)
Lemma room_is_a_bound : forall m start begin q a most, refunds_within m -> 0 <= most ->
  (forall s l now t c n, reached m start begin s l now -> now <= t -> valid_quota q ->
    0 < c <= free_under m q s t -> all_under q (firstn n l) -> a t = true ->
    nets a (firstn n l) + c <= most) ->
  forall s l now n, reached m start begin s l now -> all_under q (firstn n l) ->
    nets a (firstn n l) <= most.
Proof.
  intros m start begin q a most W Hm Hr s l now n H. revert n.
  induction H as [|s l now q' t c s' mk H IH Ht Hq Hc E
    |s newer e older now q' t u s' k H IH Ht Hq He Hu E]; intros n A.
  - destruct n; cbn; lia.
  - destruct n as [|n]; cbn in *; [lia|].
    pose proof (Forall_inv A) as Q. pose proof (Forall_inv_tail A) as A'.
    cbn in Q. subst q'. destruct (a t) eqn:Ea.
    + specialize (Hr s l now t c n H Ht Hq Hc A' Ea). lia.
    + specialize (IH n A'). lia.
  - destruct (W _ _ _ _ _ _ _ (proj1 Hu) E).
    pose proof (firstn_less a n newer e older k ltac:(lia)).
    specialize (IH n (firstn_all_under q n newer e older k A)). lia.
Qed.

(** Ledgers of one window: each charge finds room beside all of them. *)
Lemma all_under_head : forall q e l, all_under q (e :: l) -> entry_quota e = q /\ all_under q l.
Proof. intros q e l H. split; [exact (Forall_inv H)|exact (Forall_inv_tail H)]. Qed.
